"""Canonicalisation of Min and Max with constants to Clip, and merging of consecutive Clips.

1. Max(x, c)                    ->  Clip(x, low=c)      c a scalar, or a constant of equal elements that does not
                                                        broadcast x
2. Min(x, c)                    ->  Clip(x, high=c)
3. Clip(Clip(x, a, b), c, d)    ->  Clip(x, a clipped by c and d, b clipped by c and d)      Relu counts as Clip(x, 0)
4. Clip(x, low=0)               ->  Relu(x)       x float: for int64 ONNX Runtime has a Clip, but no Relu
"""

from __future__ import annotations

import math

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Range
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.arithmetic import Max, Min
from mlhood.compiler.operators.elementwise import Clip, Relu, limits_of
from mlhood.compiler.passes.patterns import scalar
from mlhood.compiler.passes.rewriting import defining_node, has_one_use, sweep


def limits_to_clip(graph: Graph) -> bool:
    """Rewrite limits to Clip or Relu, and merge consecutive ones; return whether anything changed."""
    changed = sweep(graph, _rewrite_min_max, Max, Min)
    return sweep(graph, _simplify, Clip, Relu) or changed


def _rewrite_min_max(graph: Graph, node: Node) -> bool:
    for x, other in (node.inputs, node.inputs[::-1]):
        limit = scalar(other, "iuf")
        if limit is not None and x is not None and x.type == node.outputs[0].type:
            limits = (limit, math.inf) if isinstance(node.operator, Max) else (-math.inf, limit)  # rules 1 and 2
            graph.replace(node, _clip(limits, x.type), x)
            return True
    return False


def _simplify(graph: Graph, node: Node) -> bool:
    limits = limits_of(node.operator)
    inner = defining_node(node.inputs[0], Clip, Relu)
    if inner is not None and has_one_use(graph, inner.outputs[0]):
        inner_limits = limits_of(inner.operator)
        if not any(map(math.isnan, (*limits, *inner_limits))):
            # if low > high, the result of a Clip is high
            low, high = (min(max(end, limits[0]), limits[1]) for end in (min(inner_limits), inner_limits[1]))
            graph.replace(node, _clip((low, high), node.outputs[0].type), inner.inputs[0])
            graph.remove(inner)  # rule 3
            return True
    operator = _clip(limits, node.outputs[0].type)
    if isinstance(node.operator, Clip) and isinstance(operator, Relu):
        graph.replace(node, operator, node.inputs[0])  # rule 4
        return True
    return False


def _clip(limits: Range, type: TensorType) -> Operator:
    low, high = (float(limit) if type.is_float else limit for limit in limits)
    if type.is_float and (low, high) == (0, math.inf):
        return Relu()
    return Clip(None if low == -math.inf else low, None if high == math.inf else high)
