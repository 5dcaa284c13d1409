"""Limits: Min and Max with numbers are Clips, and Clips in a row are one.

1. Max(x, c)                    ->  Clip(x, low=c)      c one number, or the same number throughout, not stretching x
2. Min(x, c)                    ->  Clip(x, high=c)
3. Clip(Clip(x, a, b), c, d)    ->  Clip(x, a clipped by c and d, b clipped by c and d)      Relu being Clip(x, 0)
4. Clip(x, low=0)               ->  Relu(x)       x of reals: for int64 ONNX Runtime has a Clip, but no Relu
"""

from __future__ import annotations

import math

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Max, Min
from mlhood.compiler.operators.elementwise import Clip, Relu
from mlhood.compiler.passes.ranges import Range, limits_of
from mlhood.compiler.passes.rewriting import array_of, is_read_once, made_by, sweep


def limits_to_clip(graph: Graph) -> bool:
    """Spell limits as Clip or Relu, one in a row; tell whether anything changed."""
    changed = sweep(graph, _from_extreme, Max, Min)
    return sweep(graph, _simplify, Clip, Relu) or changed


def _from_extreme(graph: Graph, node: Node) -> bool:
    for x, other in (node.inputs, node.inputs[::-1]):
        number = _number(other)
        if number is not None and x is not None and x.type == node.outputs[0].type:
            limits = (number, math.inf) if isinstance(node.operator, Max) else (-math.inf, number)  # rules 1 and 2
            graph.replace(node, _spelled(limits, x.type), x)
            return True
    return False


def _number(value: Value | None) -> float | int | None:
    array = array_of(value)
    if array is None or array.size == 0 or array.dtype.kind not in "iuf" or (array != array.flat[0]).any():
        return None  # not a number differs from itself
    return array.flat[0].item()


def _simplify(graph: Graph, node: Node) -> bool:
    limits = limits_of(node.operator)
    inner = made_by(node.inputs[0], Clip, Relu)
    if (
        inner is not None
        and is_read_once(graph, inner.outputs[0])
        and _are_numbers(*limits, *limits_of(inner.operator))
    ):
        graph.replace(node, _spelled(_both(limits_of(inner.operator), limits), node.outputs[0].type), inner.inputs[0])
        graph.remove(inner)  # rule 3
        return True
    operator = _spelled(limits, node.outputs[0].type)
    if isinstance(node.operator, Clip) and isinstance(operator, Relu):
        graph.replace(node, operator, node.inputs[0])  # rule 4
        return True
    return False


def _both(inner: Range, outer: Range) -> Range:
    """Return the limits of one Clip after another; where limits cross, the upper one has the last word."""
    low, high = (min(max(end, outer[0]), outer[1]) for end in (min(inner), inner[1]))
    return low, high


def _are_numbers(*limits: float) -> bool:
    return not any(map(math.isnan, limits))


def _spelled(limits: Range, type: TensorType) -> Operator:
    low, high = (float(limit) if type.is_float else limit for limit in limits)
    if type.is_float and (low, high) == (0, math.inf):
        return Relu()
    return Clip(None if low == -math.inf else low, None if high == math.inf else high)
