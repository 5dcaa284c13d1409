"""Canonicalisation of products with a constant matrix to FullyConnected; the weight is transposed at compile time.

1. MatMul(x, w)               ->  FullyConnected(x, w^T)                 x of rank 2 or more, w a constant matrix or the
                                                                         transpose of one, such as an embedding's
2. FullyConnected(x, w) + c   ->  FullyConnected(x, w, c)                c a constant, one number per output
3. alpha x w + beta c (Gemm)  ->  FullyConnected(x, alpha w^T, beta c)   w constant, x not transposed, c absent or one
                                                                         number per output
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.matrix import FullyConnected, Gemm, MatMul
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.passes.affine import fold_into_layer
from mlhood.compiler.passes.rewriting import (
    constant_array,
    defining_node,
    erase_if_unused,
    sweep,
    transfer_name,
    try_infer,
    type_of,
)


def products_to_dense(graph: Graph) -> bool:
    """Rewrite products with constant matrices to FullyConnected; return whether anything changed."""
    changed = sweep(graph, _rewrite_matmul, MatMul)
    changed = sweep(graph, _rewrite_gemm, Gemm) or changed
    return sweep(graph, _fold_addition, Add) or changed


def _rewrite_matmul(graph: Graph, node: Node) -> bool:
    x, w = node.inputs
    transpose = defining_node(w, Transpose)
    stored = transpose.inputs[0] if transpose and transpose.operator.attributes["permutation"] == (1, 0) else None
    if x is not None and x.type.is_float and transpose is not None and isinstance(stored, Constant):
        if try_infer(FullyConnected(), x.type, stored.type) != node.outputs[0].type:
            return False
        graph.replace(node, FullyConnected(), x, stored)
        erase_if_unused(graph, transpose)
        return True
    weight = constant_array(w)
    if x is None or weight is None or weight.ndim != 2 or not x.type.is_float:
        return False
    return _replace(graph, node, x, weight.T, None)  # rule 1


def _fold_addition(graph: Graph, node: Node) -> bool:
    after_dense = any(defining_node(value, FullyConnected) for value in node.inputs)
    return after_dense and fold_into_layer(graph, node)  # rule 2


def _rewrite_gemm(graph: Graph, node: Node) -> bool:
    operator = node.operator
    x, w, c = (*node.inputs, None)[:3]
    weight = constant_array(w)
    if not isinstance(operator, Gemm) or x is None or weight is None or operator.transpose_a or not x.type.is_float:
        return False
    weight = weight if operator.transpose_b else weight.T
    bias = None if c is None else _bias(c, weight.shape[0], operator.beta)
    if c is not None and bias is None:
        return False
    return _replace(graph, node, x, weight if operator.alpha == 1 else weight * operator.alpha, bias)  # rule 3


def _bias(c: Value, features: int, beta: float) -> np.ndarray | Value | None:
    """Return an addend as one number per output; None if it may vary by row."""
    array = constant_array(c)
    if array is None:
        return c if beta == 1 and c.type.shape == (features,) else None
    if array.ndim > 2 or array.shape[-1:] not in ((), (1,), (features,)) or array.shape[:-1] not in ((), (1,)):
        return None
    if array.shape == (features,) and beta == 1:
        return c
    return np.broadcast_to(array.reshape(-1) * np.asarray(beta, array.dtype), (features,))


def _replace(graph: Graph, node: Node, x: Value, weight: np.ndarray, bias: np.ndarray | Value | None) -> bool:
    w, c = (*node.inputs, None)[1:3]
    types = [None if operand is None else type_of(operand) for operand in (x, weight, bias)]
    if try_infer(FullyConnected(), *types) != node.outputs[0].type:
        return False
    new_w = _constant(graph, weight, w, f"{node.name}.weight")
    new_c = bias if bias is None or isinstance(bias, Value) else _constant(graph, bias, c, f"{node.name}.bias")
    graph.replace(node, FullyConnected(), x, new_w, new_c)
    transfer_name(graph, new_w, w)
    transfer_name(graph, new_c, c)
    return True


def _constant(graph: Graph, array: np.ndarray, old: Value | None, default_name: str) -> Value:
    """Return a constant for an array; the old constant if its array is unchanged."""
    if isinstance(old, Constant) and array is old.data:
        return old
    return graph.constant(old.name if old else default_name, np.ascontiguousarray(array))
