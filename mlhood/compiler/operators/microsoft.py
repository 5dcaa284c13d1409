"""Operators of com.microsoft that ONNX Runtime's quantiser writes, by standard ones.

Those on quantised tensors (QLinearAdd) become DequantizeLinear, the operator on reals, and QuantizeLinear: results may
differ from ONNX Runtime's by one step where its kernels round in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Mul
from mlhood.compiler.operators.cast import Cast, number_of
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.quantized import BlockDense, Dequantize, Quantize

# By the name behind "QLinear", which is the standard operator's: how many inputs are plain, and how many quantised.
_QLINEAR = {"Add": (0, 2), "Mul": (0, 2), "Where": (1, 2), "Sigmoid": (0, 1), "LeakyRelu": (0, 1)}
_QLINEAR |= {"GlobalAveragePool": (0, 1), "AveragePool": (0, 1)}
_WEIGHT_BITS = (2, 4, 8)


def _dequantized(source: OnnxNode, position: int, axis: int | None = None) -> Value:
    """Return the reals that an input represents; scale and zero point are the next two."""
    x, scale, offset = source.input(position), source.input(position + 1), source.optional(position + 2)
    return source.call("DequantizeLinear", x, scale, offset, axis=axis)


def _quantized(source: OnnxNode, y: Value, position: int, like: int) -> Value:
    """Return reals as integers of the type of the input `like`; scale and zero point are those at `position`."""
    offset = source.optional(position + 1)
    number = None if offset else number_of(source.input(like).type.element)
    return source.call("QuantizeLinear", y, source.input(position), offset, output_dtype=number)


def _import_qlinear(source: OnnxNode) -> Value:
    """Dequantise each operand, compute, and quantise the result."""
    name, attributes = source.op_type.removeprefix("QLinear"), dict(source.attributes)
    if attributes.pop("channels_last", 0):
        raise source.unsupported("the channels must be the second axis", "quantise before ONNX Runtime optimises it")
    plain, count = _QLINEAR[name]
    operands = [_dequantized(source, plain + 3 * i) for i in range(count)]
    y = source.call(name, *source.inputs[:plain], *operands, **attributes)
    return _quantized(source, y, plain + 3 * count, plain)


def _import_qlinear_concat(source: OnnxNode) -> Value:
    operands = [_dequantized(source, i) for i in range(2, len(source.inputs), 3)]
    return _quantized(source, source.call("Concat", *operands, **source.attributes), 0, 2)


def _import_qlinear_softmax(source: OnnxNode) -> Value:
    x = _dequantized(source, 0)
    first = normalize_axis(source.attribute("axis", -1), x.type.rank)
    last = x.type.rank if source.attribute("opset", 13) < 13 else first + 1  # in old opsets over all axes behind it
    return _quantized(source, source.add(Softmax(tuple(range(first, last))), x), 3, 0)


def _import_qgemm(source: OnnxNode) -> Value:
    """QGemm: the bias is int32 in units of a_scale b_scale; without a scale of y, y is float32."""
    a, b = _dequantized(source, 0), _dequantized(source, 3, 1 - source.attribute("transB", 0))
    y = source.call("Gemm", a, b, **source.attributes)
    if source.has(6):
        alpha = source.constant(np.array(source.attribute("alpha", 1.0), np.float32))
        unit = source.add(Mul(), source.add(Mul(), source.input(1), source.input(4)), alpha)
        y = source.add(Add(), y, source.add(Mul(), source.add(Cast("float32"), source.input(6)), unit))
    return _quantized(source, y, 7, 0) if source.has(7) else y


def _sum(source: OnnxNode, first: Value, *terms: Value | None) -> Value:
    for term in terms:
        first = first if term is None else source.add(Add(), first, term)
    return first


def _unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Return the first `count` unsigned integers that are packed along the last axis, the lowest bits first."""
    parts = packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)[..., :count]


def _import_matmul_n_bits(source: OnnxNode) -> Value:
    """MatMulNBits: x [..., K] times constant weights [N, K] of few bits, kept so if they fit into int8."""
    columns, rows, size = (source.attribute(name, 0) for name in ("K", "N", "block_size"))
    bits = source.attribute("bits", 4)
    valid = bits in _WEIGHT_BITS and min(columns, rows, size) > 0
    require(valid, "invalid attributes", expected="positive K, N and block_size, 2, 4 or 8 bits", got=source.attributes)
    count = -(-columns // size)
    data = _unpacked(source.static(1).reshape(rows, -1), bits, columns)
    scale = source.static(2).reshape(rows, count)
    offset = source.static(3).reshape(rows, -1) if source.has(3) else np.full((rows, count), 1 << (bits - 1))
    offset = _unpacked(offset, bits, count) if offset.dtype == np.uint8 else offset
    block = source.static(4) if source.has(4) and source.static(4).size else np.arange(columns) // size
    integers = data.astype(np.float32) - offset[:, block].astype(np.float32)
    small = (
        np.abs(integers).max(initial=0) < 128 and (integers == np.rint(integers)).all() and scale.dtype == np.float32
    )
    if small and source.input(0).type.rank >= 2 and (block == np.arange(columns) // size).all():
        inputs = source.input(0), source.constant(integers.astype(np.int8)), source.constant(scale)
        return _sum(source, source.add(BlockDense(size), *inputs), source.optional(5))
    weights = integers * scale[:, block].astype(np.float32)
    y = source.call("MatMul", source.input(0), source.constant(weights.T.astype(scale.dtype)))
    return _sum(source, y, source.optional(5))


_RULES: dict[str, Callable[[OnnxNode], Any]] = {
    "QuantizeLinear": Quantize.from_onnx,
    "DequantizeLinear": Dequantize.from_onnx,
    **{f"QLinear{name}": _import_qlinear for name in _QLINEAR},
    "QLinearSoftmax": _import_qlinear_softmax,
    "QLinearConcat": _import_qlinear_concat,
    "QGemm": _import_qgemm,
    "MatMulNBits": _import_matmul_n_bits,
}
RULES = {f"com.microsoft::{name}": rule for name, rule in _RULES.items()}
