"""Expansion of attention into the products and the Softmax that the CPU has kernels for.

1. Attention(q, k, v)        ->  Softmax(scale q k^T) v
2. Attention(q, k, v, mask)  ->  Softmax(scale q k^T + mask) v
3. causal attention          ->  as rule 2, with -inf above the diagonal in the mask
4. a mask that may hide all keys of a query  ->  Softmax(scale q k^T + max(mask, lowest)) v visible

In rule 4, visible is 1 for a query with a key that the mask does not hide and 0 for others, whose result is 0; lowest
is the lowest finite number, as a Softmax of infinities alone would not be a number. Causal attention between dynamic
numbers of queries and keys is not expanded.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add, Greater, Max, Mul
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.matrix import MatMul
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.passes.transposes import sink_transposes

_REDUCE_MAX = next(reduction for reduction in REDUCTIONS if reduction.__name__ == "ReduceMax")
_LOWEST = np.finfo(np.float32).min
AddNode = Callable[..., Value]


def expand_attention(graph: Graph) -> None:
    """Express attention in float32 by products and Softmax.

    Args:
        graph: The graph, modified in place.
    """
    expanded = [node for node in graph.topological() if isinstance(node.operator, Attention) and _expand(graph, node)]
    if expanded:
        while sink_transposes(graph):  # those of the keys merge with those that divide them into heads
            pass


def _expand(graph: Graph, node: Node) -> bool:
    q, k, v, mask = (*node.inputs, None)[:4]
    operator = node.operator
    if q is None or k is None or v is None or not isinstance(operator, Attention) or q.type.element != "float32":
        return False
    if operator.causal:
        lengths = q.type.shape[-2], k.type.shape[-2]
        if not all(isinstance(length, int) for length in lengths):
            return False

    def add(kind: Operator, *inputs: Value) -> Value:
        return graph.add(kind, *inputs, name=f"{node.name}.{kind.name.lower()}").outputs[0]

    rank = k.type.rank
    keys = add(Transpose((*range(rank - 2), rank - 1, rank - 2)), k)
    scale = graph.constant(f"{node.name}.scale", np.array(operator.scale, np.float32))
    scores = add(MatMul(), add(Mul(), q, scale), keys)
    if operator.causal:
        mask = _causal(graph, node, mask, add)  # rule 3
    hides = mask is not None and not _shows_all(mask)
    if mask is not None:
        lowest = graph.constant(f"{node.name}.lowest", np.array(_LOWEST, np.float32)) if hides else None
        scores = add(Add(), scores, mask if lowest is None else add(Max(), mask, lowest))
    weights = add(Softmax((scores.type.rank - 1,)), scores)
    if not hides or mask is None:
        graph.replace(node, MatMul(), weights, v)  # rules 1 and 2
        return True
    infinity = graph.constant(f"{node.name}.infinity", np.array(-np.inf, np.float32))
    visible = add(Cast("float32"), add(Greater(), add(_REDUCE_MAX((-1,), True), mask), infinity))
    graph.replace(node, Mul(), add(MatMul(), weights, v), visible)  # rule 4
    return True


def _causal(graph: Graph, node: Node, mask: Value | None, add: AddNode) -> Value:
    """Return the mask with -inf for the keys behind each query."""
    q, k = node.inputs[:2]
    lengths = [int(value.type.shape[-2]) for value in (q, k) if value is not None]
    future = np.triu(np.full(lengths, -np.inf, np.float32), 1)
    if isinstance(mask, Constant):
        return graph.constant(f"{node.name}.mask", mask.data + future)
    constant = graph.constant(f"{node.name}.mask", future)
    return constant if mask is None else add(Add(), mask, constant)


def _shows_all(mask: Value) -> bool:
    """Return whether a mask is known to leave each query a key."""
    return isinstance(mask, Constant) and bool(np.isfinite(mask.data.max(axis=-1, initial=-np.inf)).all())
