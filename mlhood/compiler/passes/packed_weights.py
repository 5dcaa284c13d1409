"""Products with integers in blocks, each with a scale, to BlockDense: the weights stay in 8 bits or fewer."""

from __future__ import annotations

import math

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Mul
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.matrix import Gemm, MatMul
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.passes.removal import remove_dead_code
from mlhood.compiler.passes.rewriting import constant_array, defining_node, sweep, try_infer, type_of


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
    block = _block(scale)
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


def _block(scale: np.ndarray) -> int:
    """Return how many columns share their scales: the distances of all changes are multiples of it."""
    changes = np.flatnonzero((scale[:, 1:] != scale[:, :-1]).any(axis=0)) + 1
    return math.gcd(*changes.tolist()) or scale.shape[1]
