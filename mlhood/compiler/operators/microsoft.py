"""Operators of com.microsoft that ONNX Runtime's quantiser writes, and its optimiser before it, by standard ones.

Those on quantised tensors (QLinearAdd) become DequantizeLinear, the operator on reals, and QuantizeLinear: results may
differ from ONNX Runtime's by one step where its kernels round in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Less, Mul
from mlhood.compiler.operators.cast import Cast, number_of
from mlhood.compiler.operators.movement import Gather, Transpose
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.quantized import BlockDense, Dequantize, Quantize
from mlhood.compiler.operators.shape import Unsqueeze

# By the name behind "QLinear", which is the standard operator's: how many inputs are plain, and how many quantised.
_QLINEAR = {"Add": (0, 2), "Mul": (0, 2), "Where": (1, 2), "Sigmoid": (0, 1), "LeakyRelu": (0, 1)}
_QLINEAR |= {"GlobalAveragePool": (0, 1), "AveragePool": (0, 1)}
_WEIGHT_BITS = (2, 4, 8)

_Factor = tuple[Value | None, Value | None, Value | None]  # integers, scale and zero point


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


def _scaled_product(source: OnnxNode, a: _Factor, b: _Factor, bias: Value | None) -> Value:
    """Return the product of two factors as reals, with a bias."""
    product = source.call("MatMulInteger", a[0], b[0], a[2], b[2])
    return _sum(source, source.add(Mul(), source.add(Cast("float32"), product), source.call("Mul", a[1], b[1])), bias)


def _sum(source: OnnxNode, first: Value, *terms: Value | None) -> Value:
    for term in terms:
        first = first if term is None else source.add(Add(), first, term)
    return first


def _import_matmul_integer_to_float(source: OnnxNode) -> Value:
    a, b, a_scale, b_scale, a_offset, b_offset, bias = (source.optional(i) for i in range(7))
    return _scaled_product(source, (a, a_scale, a_offset), (b, b_scale, b_offset), bias)


def _import_dynamic_quantize_matmul(source: OnnxNode) -> Value:
    b, b_scale, b_offset, bias = (source.optional(i) for i in range(1, 5))
    x, scale, offset = source.call_all("DynamicQuantizeLinear", 3, source.input(0))
    return _scaled_product(source, (x, scale, offset), (b, b_scale, b_offset), bias)


def _import_dynamic_quantize_lstm(source: OnnxNode) -> Sequence[Value]:
    """DynamicQuantizeLSTM: an LSTM of rounded inputs with dequantised weights; the state is not rounded."""
    x = source.call("DequantizeLinear", *source.call_all("DynamicQuantizeLinear", 3, source.input(0)))
    weights = []
    for position, parameters in ((1, 8), (2, 10)):
        scale, offset = source.static(parameters), source.static(parameters + 1)
        rows = (-1, 1, scale.shape[-1]) if scale.ndim == 2 else (-1, 1, 1)  # for each row of each direction, or one
        real = (source.static(position).astype(np.int32) - offset.reshape(rows)) * scale.reshape(rows)
        weights.append(source.constant(real.swapaxes(1, 2).astype(np.float32)))
    return source.call_all("LSTM", 3, x, *weights, *(source.optional(i) for i in range(3, 8)), **source.attributes)


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


def _import_attention(source: OnnxNode) -> Value:
    """Attention, and QAttention, whose projection multiplies integers.

    The mask is 1 for each key that takes part, 0 for the others, [B, S]; or how many take part, the first ones, [B].
    """
    quantized = source.op_type == "QAttention"
    others = any(map(source.has, (8,) if quantized else (4, 5, 6))) or source.uses_output(1)
    if others or source.attribute("do_rotary", 0) or source.attribute("qkv_hidden_sizes", None):
        raise source.unsupported("past keys and values, rotations and different sizes of heads are not supported")
    if quantized:
        x, w, bias, x_scale, w_scale, mask, x_offset, w_offset = (source.optional(i) for i in range(8))
        projected = _scaled_product(source, (x, x_scale, x_offset), (w, w_scale, w_offset), bias)
    else:
        x, w, bias, mask = (source.optional(i) for i in range(4))
        projected = _sum(source, source.call("MatMul", x, w), bias)
    if mask is not None and mask.type.rank == 1:
        keys = source.constant(np.arange(_length(source, projected), dtype=mask.type.dtype))
        mask = source.add(Cast("int32"), source.add(Less(), keys, source.add(Unsqueeze((1,)), mask)))
    if mask is not None:
        require(mask.type.rank == 2, "the mask must have one or two axes", got=list(mask.type.shape))
        hidden = source.call("Sub", source.constant(np.array(1, mask.type.dtype)), mask)
        filler = np.array(source.attribute("mask_filter_value", -10000.0), projected.type.dtype)
        mask = source.add(Mul(), source.add(Cast(projected.type.element), hidden), source.constant(filler))
        mask = source.add(Unsqueeze((1, 2)), mask)
    heads, causal = source.attribute("num_heads", 0), source.attribute("unidirectional", 0)
    given = {"q_num_heads": heads, "kv_num_heads": heads, "is_causal": causal, "scale": source.attribute("scale", None)}
    return source.call("Attention", *source.call_all("Split", 3, projected, axis=-1), mask, **given)


def _length(source: OnnxNode, x: Value) -> int:
    length = x.type.shape[1]
    if isinstance(length, str):
        raise source.unsupported(f"the length of axis {length!r} must be known", "import_model(..., dims={...})")
    return length


def _import_embed_layer_normalization(source: OnnxNode) -> list[Value | None]:
    """EmbedLayerNormalization, and QEmbedLayerNormalization with quantised tables."""
    quantized = source.op_type.startswith("Q")
    inputs = [(source.optional(i), source.optional(i + 6), source.optional(i + 11)) for i in range(2, 7)]
    tables = [source.call("DequantizeLinear", *each) if quantized and each[0] else each[0] for each in inputs]
    words, segments, positions = source.input(0), source.optional(1), None if quantized else source.optional(8)
    if positions is None:
        positions = source.constant(np.arange(_length(source, words), dtype=np.int64)[None])
    indices = zip(tables[:3], (words, positions, segments), strict=True)
    total = _sum(source, *(source.add(Gather(0), table, i) for table, i in indices if table and i))
    y = source.call("LayerNormalization", total, *tables[3:], epsilon=source.attribute("epsilon", 1e-12))
    mask, axes = source.optional(7) or source.call("Sub", words, words), source.constant(np.array([1]))
    return [y, source.call("ReduceSum", source.add(Cast("int32"), mask), axes, keepdims=0), total]


def _import_skip_normalization(source: OnnxNode, name: str, parameters: int) -> list[Value | None]:
    """Normalise the sum of two tensors, and of a bias behind the parameters."""
    total = _sum(source, source.input(0), source.input(1), source.optional(2 + parameters))
    vectors, epsilon = source.inputs[2 : 2 + parameters], source.attribute("epsilon", 1e-12)
    return [source.call(name, total, *vectors, epsilon=epsilon), None, None, total]


def _import_gelu(source: OnnxNode) -> Value:
    """Gelu, BiasGelu and FastGelu, the two latter of the sum with a bias."""
    approximate = "tanh" if source.op_type == "FastGelu" else "none"
    return source.call("Gelu", _sum(source, source.input(0), source.optional(1)), approximate=approximate)


def _import_quick_gelu(source: OnnxNode) -> Value:
    x = source.input(0)
    alpha = source.constant(np.array(source.attribute("alpha", 1.702), x.type.dtype))
    return source.add(Mul(), x, source.call("Sigmoid", source.add(Mul(), x, alpha)))


def _import_fused_matmul(source: OnnxNode) -> Value:
    if source.attribute("transBatchA", 0) or source.attribute("transBatchB", 0):
        raise source.unsupported("transposed batches are not supported")
    factors = [source.input(0), source.input(1)]
    for i, x in enumerate(factors):
        if source.attribute(f"trans{'AB'[i]}", 0):
            factors[i] = source.add(Transpose((*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)), x)
    y = source.call("MatMul", *factors)
    return source.add(Mul(), y, source.constant(np.array(source.attribute("alpha", 1.0), y.type.dtype)))


_RULES: dict[str, Callable[[OnnxNode], Any]] = {
    "QuantizeLinear": Quantize.from_onnx,
    "DequantizeLinear": Dequantize.from_onnx,
    **{f"QLinear{name}": _import_qlinear for name in _QLINEAR},
    "QLinearSoftmax": _import_qlinear_softmax,
    "QLinearConcat": _import_qlinear_concat,
    "QGemm": _import_qgemm,
    "MatMulIntegerToFloat": _import_matmul_integer_to_float,
    "DynamicQuantizeMatMul": _import_dynamic_quantize_matmul,
    "DynamicQuantizeLSTM": _import_dynamic_quantize_lstm,
    "MatMulNBits": _import_matmul_n_bits,
    **dict.fromkeys(("Attention", "QAttention"), _import_attention),
    **dict.fromkeys(("EmbedLayerNormalization", "QEmbedLayerNormalization"), _import_embed_layer_normalization),
    "FusedMatMul": _import_fused_matmul,
    "QuickGelu": _import_quick_gelu,
    **dict.fromkeys(("Gelu", "BiasGelu", "FastGelu"), _import_gelu),
    "SkipLayerNormalization": partial(_import_skip_normalization, name="LayerNormalization", parameters=2),
    "SkipSimplifiedLayerNormalization": partial(_import_skip_normalization, name="RMSNormalization", parameters=1),
}
RULES = {f"com.microsoft::{name}": rule for name, rule in _RULES.items()}
