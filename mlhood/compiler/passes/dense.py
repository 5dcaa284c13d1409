"""Dense layers: products with a constant matrix are FullyConnected, the weight turned when compiling.

1. MatMul(x, w)               ->  FullyConnected(x, w^T)                 x of rank 2 or more, w a constant matrix
2. FullyConnected(x, w) + c   ->  FullyConnected(x, w, c)                c a constant, one number for each output
3. alpha x w + beta c (Gemm)  ->  FullyConnected(x, alpha w^T, beta c)   w constant, x not transposed, c none or one
                                                                         number for each output
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.matrix import FullyConnected, Gemm, MatMul
from mlhood.compiler.passes.affine import fold_into_layer
from mlhood.compiler.passes.rewriting import array_of, infer, inherit, made_by, sweep


def products_to_dense(graph: Graph) -> bool:
    """Spell products with constant matrices as dense layers; tell whether there were any."""
    changed = sweep(graph, _product, MatMul)
    changed = sweep(graph, _gemm, Gemm) or changed
    return sweep(graph, _addition, Add) or changed


def _product(graph: Graph, node: Node) -> bool:
    x, w = node.inputs
    weight = array_of(w)
    if x is None or weight is None or weight.ndim != 2 or not x.type.is_float:
        return False
    return _replace(graph, node, x, weight.T, None)  # rule 1


def _addition(graph: Graph, node: Node) -> bool:
    dense = any(made_by(value, FullyConnected) for value in node.inputs)
    return dense and fold_into_layer(graph, node)  # rule 2


def _gemm(graph: Graph, node: Node) -> bool:
    operator = node.operator
    x, w, c = (*node.inputs, None)[:3]
    weight = array_of(w)
    if not isinstance(operator, Gemm) or x is None or weight is None or operator.transpose_a or not x.type.is_float:
        return False
    weight = weight if operator.transpose_b else weight.T
    bias = None if c is None else _bias(c, weight.shape[0], operator.beta)
    if c is not None and bias is None:
        return False
    return _replace(graph, node, x, weight if operator.alpha == 1 else weight * operator.alpha, bias)  # rule 3


def _bias(c: Value, features: int, beta: float) -> np.ndarray | Value | None:
    """Return an addend as one number for each output; None if it differs from row to row, or may do so."""
    array = array_of(c)
    if array is None:
        return c if beta == 1 and c.type.shape == (features,) else None
    if array.ndim > 2 or array.shape[-1:] not in ((), (1,), (features,)) or array.shape[:-1] not in ((), (1,)):
        return None
    if array.shape == (features,) and beta == 1:
        return c
    return np.broadcast_to(array.reshape(-1) * np.asarray(beta, array.dtype), (features,))


def _replace(graph: Graph, node: Node, x: Value, weight: np.ndarray, bias: np.ndarray | Value | None) -> bool:
    w, c = (*node.inputs, None)[1:3]
    types = [None if one is None else _type(one) for one in (x, weight, bias)]
    if infer(FullyConnected(), *types) != node.outputs[0].type:
        return False
    heavy = _constant(graph, weight, w, f"{node.name}.weight")
    light = bias if bias is None or isinstance(bias, Value) else _constant(graph, bias, c, f"{node.name}.bias")
    graph.replace(node, FullyConnected(), x, heavy, light)
    for heir, old in ((heavy, w), (light, c)):
        if isinstance(heir, Constant) and heir is not old:
            inherit(graph, heir, old)
    return True


def _type(one: np.ndarray | Value) -> TensorType:
    return one.type if isinstance(one, Value) else TensorType(one.dtype.name, one.shape)


def _constant(graph: Graph, array: np.ndarray, old: Value | None, otherwise: str) -> Value:
    """Return a constant for an array: the old one, where the array is that one's own."""
    if isinstance(old, Constant) and array is old.data:
        return old
    return graph.constant(old.name if old else otherwise, np.ascontiguousarray(array))
