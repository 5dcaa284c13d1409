"""Weight-only quantisation: the weights of dense layers in 8 or 4 bits, all else in float32.

1. FullyConnected(x, w, bias)  ->  BlockDense(x, round(w / scale), scale, bias)  w constant, scale = -extreme / 128 or 8

The extreme is the weight of the largest magnitude in a block of a row: it becomes the least integer exactly, as there
is one more below zero than above. Weights are rounded to the nearest integer, without calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.passes.canonicalization import replace_by_block_dense
from mlhood.compiler.passes.removal import remove_dead_code
from mlhood.compiler.passes.rewriting import constant_array
from mlhood.errors import CompilerError


@dataclass(frozen=True)
class WeightFormat:
    """How weights are stored.

    Args:
        bits: Of a weight, 8 or 4.
        block: Number of weights of a row that share a scale; 0 for the whole row, that is a scale for each channel.
    """

    bits: int
    block: int = 0


INT8, INT4 = WeightFormat(8), WeightFormat(4, 32)


def quantize_weights(graph: Graph, form: WeightFormat = INT8) -> int:
    """Quantise the weights of all dense layers of float32, in place (rule 1); return how many layers that are.

    Args:
        graph: An optimised graph.
        form: How the weights are stored.

    Raises:
        CompilerError: There is no such format.
    """
    if form.bits not in (4, 8) or form.block < 0:
        raise CompilerError("unknown format of weights", expected="8 or 4 bits, blocks of 0 or more", got=form)
    layers = [node for node in graph.nodes.values() if isinstance(node.operator, FullyConnected)]
    quantized = sum(_quantize(graph, node, form) for node in layers)
    remove_dead_code(graph)
    return quantized


def _quantize(graph: Graph, node: Node, form: WeightFormat) -> bool:
    x, w, *bias = node.inputs
    weight, operator = constant_array(w), node.operator
    if weight is None or weight.dtype != np.float32 or not weight.size or not isinstance(operator, FullyConnected):
        return False
    block = form.block or weight.shape[1]
    integers, scale = round_to_nearest(weight, form.bits, block)
    replace_by_block_dense(graph, node, BlockDense(block, operator.activation), x, integers, scale, *bias)
    return True


def round_to_nearest(weight: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights [F, K] as int8 [F, K], and their scales, float32 [F, ceil(K / block)]."""
    rows, columns = weight.shape
    count, limit = -(-columns // block), 2 ** (bits - 1)
    padded = np.zeros((rows, count * block), np.float32)
    padded[:, :columns] = weight
    blocks = padded.reshape(rows, count, block)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2, keepdims=True), axis=2)
    scale = extreme / np.float32(-limit)
    integers = np.rint(blocks / np.where(scale == 0, 1, scale)).clip(-limit, limit - 1).astype(np.int8)
    return integers.reshape(rows, -1)[:, :columns].copy(), scale[:, :, 0]
