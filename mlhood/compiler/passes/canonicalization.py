"""Canonicalisation: one form for what exporters write in several, which back ends and later passes support."""

from __future__ import annotations

import math

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Range
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add, Max, Min, Mul
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.elementwise import Clip, Relu, limits_of
from mlhood.compiler.operators.matrix import FullyConnected, Gemm, MatMul
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.pooling import GlobalAveragePool
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.operators.reduction import ReduceMean, Reduction
from mlhood.compiler.operators.shape import Flatten
from mlhood.compiler.passes.fusion import fold_into_layer
from mlhood.compiler.passes.patterns import scalar
from mlhood.compiler.passes.removal import remove_dead_code
from mlhood.compiler.passes.rewriting import (
    constant_array,
    defining_node,
    erase_if_unused,
    has_one_use,
    sweep,
    transfer_name,
    try_infer,
    type_of,
)


def limits_to_clip(graph: Graph) -> bool:
    """Rewrite limits to Clip or Relu, and merge consecutive ones; return whether anything changed.

    1. Max(x, c)                  ->  Clip(x, low=c)    c a scalar, or a constant of equal elements that does not
                                                        broadcast x
    2. Min(x, c)                  ->  Clip(x, high=c)
    3. Clip(Clip(x, a, b), c, d)  ->  Clip(x, a clipped by c and d, b clipped by c and d)    Relu counts as Clip(x, 0)
    4. Clip(x, low=0)             ->  Relu(x)           x float: for int64 ONNX Runtime has a Clip, but no Relu
    """
    changed = sweep(graph, _rewrite_min_max, Max, Min)
    return sweep(graph, _simplify_clip, Clip, Relu) or changed


def _rewrite_min_max(graph: Graph, node: Node) -> bool:
    for x, other in (node.inputs, node.inputs[::-1]):
        limit = scalar(other, "iuf")
        if limit is not None and x is not None and x.type == node.outputs[0].type:
            limits = (limit, math.inf) if isinstance(node.operator, Max) else (-math.inf, limit)  # rules 1 and 2
            graph.replace(node, _clip(limits, x.type), x)
            return True
    return False


def _simplify_clip(graph: Graph, node: Node) -> bool:
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


def means_to_pools(graph: Graph) -> bool:
    """Rewrite means over spatial axes to pooling; return whether anything changed.

    1. ReduceMean(x) over all axes from 2 on, keepdims=1  ->  GlobalAveragePool(x)
    2. ReduceMean(x) over all axes from 2 on, keepdims=0  ->  Flatten(GlobalAveragePool(x))

    x is float32 and has one to three such axes, which is what runtimes like ONNX Runtime support for pooling.
    """
    return sweep(graph, _to_pool, ReduceMean)


def _to_pool(graph: Graph, node: Node) -> bool:
    operator, x = node.operator, node.inputs[0]
    if x is None or not isinstance(operator, Reduction) or x.type.element != "float32" or x.type.rank not in (3, 4, 5):
        return False
    if sorted(normalize_axis(axis, x.type.rank) for axis in operator.axes) != list(range(2, x.type.rank)):
        return False
    if operator.keep:
        graph.replace(node, GlobalAveragePool(), x)  # rule 1
        return True
    pool = graph.add(GlobalAveragePool(), x)
    flat = graph.replace(node, Flatten(1), pool.outputs[0])  # rule 2
    name = flat.name
    graph.rename_node(flat, f"{name}.flatten")
    graph.rename_node(pool, name)
    return True


def products_to_dense(graph: Graph) -> bool:
    """Rewrite products with constant matrices to FullyConnected; return whether anything changed.

    1. MatMul(x, w)               ->  FullyConnected(x, w^T)                 x of rank 2 or more, w a constant matrix,
                                                                             or the transpose of one: an embedding's
    2. FullyConnected(x, w) + c   ->  FullyConnected(x, w, c)                c a constant, one number per output
    3. alpha x w + beta c (Gemm)  ->  FullyConnected(x, alpha w^T, beta c)   w constant, x not transposed, c absent or
                                                                             one number per output

    The weight is transposed at compile time.
    """
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
    return _replace_by_dense(graph, node, x, weight.T, None)  # rule 1


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
    return _replace_by_dense(graph, node, x, weight if operator.alpha == 1 else weight * operator.alpha, bias)  # rule 3


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


def _replace_by_dense(graph: Graph, node: Node, x: Value, weight: np.ndarray, bias: np.ndarray | Value | None) -> bool:
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


def keep_packed_weights(graph: Graph) -> bool:
    """Rewrite products with integers in blocks to BlockDense; return whether anything changed.

    1. MatMul(x, Cast(w) scale)       ->  BlockDense(x, w^T, scale^T)   w int8 [K, F] and scale constant, which is how
                                                                        the importer writes a blocked DequantizeLinear
    2. MatMul(x, (Cast(w) scale)^T)   ->  BlockDense(x, w, scale)       w int8 [F, K]
    3. Gemm(x, Cast(w) scale, c)      ->  as 1 or 2 by `transB`, with c as the bias

    It must run before constants are folded: that computes the real weights, in 32 bits.
    """
    changed = sweep(graph, _pack, MatMul, Gemm)
    if changed:
        remove_dead_code(graph)  # before anything folds the real weights, which nobody reads
    return changed


def _pack(graph: Graph, node: Node) -> bool:
    x, real, *bias = node.inputs
    operator, by_row = node.operator, False
    if isinstance(operator, Gemm):
        if operator.transpose_a or operator.alpha != 1 or operator.beta != 1:
            return False
        by_row = operator.transpose_b
    transpose = defining_node(real, Transpose)
    if transpose is not None:
        real, by_row = transpose.inputs[0], not by_row
    product = defining_node(real, Mul)
    cast = defining_node(product.inputs[0], Cast) if product else None
    if x is None or product is None or cast is None:
        return False
    weight, scale = constant_array(cast.inputs[0]), constant_array(product.inputs[1])
    if weight is None or scale is None or weight.dtype != np.int8 or weight.ndim != 2 or scale.shape != weight.shape:
        return False
    if not by_row:
        weight, scale = weight.T, scale.T
    block = _block_of(scale)
    arrays = np.ascontiguousarray(weight), np.ascontiguousarray(scale[:, ::block])
    types = [type_of(operand) for operand in (x, *arrays, *(value for value in bias if value is not None))]
    if try_infer(BlockDense(block), *types) != node.outputs[0].type:
        return False
    replace_by_block_dense(graph, node, BlockDense(block), x, *arrays, *bias)
    return True


def replace_by_block_dense(
    graph: Graph,
    node: Node,
    operator: BlockDense,
    x: Value | None,
    integers: np.ndarray,
    scale: np.ndarray,
    *bias: Value | None,
) -> None:
    """Replace a product; integers, int8 [F, K], and scale [F, blocks] become constants that are named after it."""
    arrays = {"integers": integers, "scale": scale}
    constants = [graph.constant(graph.unique_name(f"{node.name}.{name}"), each) for name, each in arrays.items()]
    graph.replace(node, operator, x, *constants, *bias)


def _block_of(scale: np.ndarray) -> int:
    """Return how many columns share their scales: the distances of all changes are multiples of it."""
    changes = np.flatnonzero((scale[:, 1:] != scale[:, :-1]).any(axis=0)) + 1
    return math.gcd(*changes.tolist()) or scale.shape[1]
