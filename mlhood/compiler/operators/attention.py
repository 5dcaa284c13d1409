"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

from mlhood.compiler.hir.operator import Operator, common_element, namespace, require, require_unquantized, unsupported
from mlhood.compiler.hir.types import TensorType, broadcast
from mlhood.compiler.operators.base import NO_BOUNDS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.cast import number_of
from mlhood.compiler.operators.matrix import matmul_shape
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Attention(Operator):
    """y = softmax(scale q k^T + mask) v (arXiv 1706.03762, equation 1).

    Inputs: q [..., L, D], k [..., S, D], v [..., S, E], whose leading axes are broadcast, and mask, which is added and
    is broadcast to [..., L, S], or none. Output: y [..., L, E]; as in ONNX, a row is 0 where all of the mask's is -inf.

    Attributes:
        scale: Factor of the products of queries and keys.
        causal: Whether query i attends to keys 0 to i only.
    """

    scale: float
    causal: bool = False

    arity = (3, 4)
    family = "product"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    from_onnx = unsupported("a pass makes it of matrix products and a Softmax")

    def infer(self, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None) -> TensorType:
        require_unquantized(q, k, v, mask)
        element = common_element(q, k, v, mask)
        require(q.is_float, "attention requires floating-point elements", got=element)
        ranks = [x.rank for x in (q, k, v)]
        require(min(ranks) >= 2, "queries, keys and values are matrices, or batches of them", got=f"ranks {ranks}")
        scores = matmul_shape(q.shape, (*k.shape[:-2], k.shape[-1], k.shape[-2]))
        if mask is not None:
            broadcasted, what = broadcast(scores, mask.shape), "the mask cannot be broadcast to queries by keys"
            axes = list(zip(scores[-2:], broadcasted[-2:], strict=True))
            fits = all(isinstance(axis, str) or axis == wide for axis, wide in axes)
            require(fits, what, expected=list(scores[-2:]), got=list(mask.shape))
            scores = broadcasted
        return TensorType(element, matmul_shape(scores, v.shape))

    def evaluate(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        xp = namespace(q)
        scores = (q * q.dtype.type(self.scale)) @ k.swapaxes(-1, -2)
        if self.causal:
            future = xp.triu(xp.full(scores.shape[-2:], -np.inf, q.dtype), 1)
            mask = future if mask is None else mask + future
        scores = scores if mask is None else scores + mask
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        powers = xp.exp(scores - xp.where(top == -np.inf, 0, top).astype(q.dtype))
        total = powers.sum(axis=-1, keepdims=True)
        weights = powers / xp.where(total == 0, 1, total)
        if mask is not None:
            weights = xp.where(_masked_rows(mask), q.dtype.type(0), weights)
        return weights @ v

    def workspace(self, *types: TensorType | None) -> int:
        q, k = types[:2]
        if q is None or k is None:
            return 0
        return math.prod(map(int, matmul_shape(q.shape, (*k.shape[:-2], k.shape[-1], k.shape[-2]))))

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        depth, keys = inputs[0][-1], inputs[1][-2]
        return math.prod(output[:-1]) * keys * (depth + output[-1])

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Export the products, the Softmax, and what makes fully masked rows 0."""
        q, k, v, *rest = inputs
        mask = rest[0] if rest else ""
        q_type, k_type = (value.type for value in writer.node.inputs[:2] if value is not None)
        order = (*range(k_type.rank - 2), k_type.rank - 1, k_type.rank - 2)
        scaled = writer.emit("Mul", q, writer.constant(np.array(self.scale, q_type.dtype)))
        scores = writer.emit("MatMul", scaled, writer.emit("Transpose", k, perm=order))
        if self.causal:
            future = _future_to_onnx(writer, q, k, q_type)
            mask = writer.emit("Add", mask, future) if mask else future
        weights = writer.emit("Softmax", writer.emit("Add", scores, mask) if mask else scores, axis=-1)
        if rest and rest[0]:
            lowest = writer.constant(np.array(-np.inf, q_type.dtype))
            masked = writer.emit("Equal", writer.emit("ReduceMax", mask, writer.integers((-1,)), keepdims=1), lowest)
            weights = writer.emit("Where", masked, writer.constant(np.zeros((), q_type.dtype)), weights)
        return writer.emit("MatMul", weights, v, name=name)


def _masked_rows(mask: np.ndarray) -> np.ndarray:
    return namespace(mask).isneginf(mask.max(axis=-1, keepdims=True, initial=-np.inf))


def _future_to_onnx(writer: OnnxWriter, q: str, k: str, q_type: TensorType) -> str:
    """Add [L, S] with -inf above the diagonal, 0 elsewhere."""
    lengths = [writer.emit("Shape", x, start=-2, end=-1) for x in (q, k)]
    fill = helper.make_tensor("value", number_of(q_type.element), [1], [-math.inf])
    full = writer.emit("ConstantOfShape", writer.emit("Concat", *lengths, axis=0), value=fill)
    one = writer.constant(np.array(1, np.int64))
    if number_of(q_type.element) in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return writer.emit("Trilu", full, one, upper=1)
    # ONNX Runtime has no Trilu of half precision
    wide = writer.emit("Trilu", writer.emit("Cast", full, to=TensorProto.FLOAT), one, upper=1)
    return writer.emit("Cast", wide, to=number_of(q_type.element))


OPERATORS = (Attention,)
