"""Rules of ATen's layers: convolutions, products, pooling, normalisation, softmax, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mlhood.compiler.torch_compile.aten import RULES, Rule, aten, require, require_floats, rule
from mlhood.compiler.torch_compile.onnx_builder import OnnxBuilder, Tensor

Names = tuple[str | None, ...]


def _spatial(values: Sequence[int], rank: int) -> list[int]:
    """Return a number for each spatial axis: torch accepts one for all."""
    return [*values] * (rank - 2) if len(values) == 1 else [*values]


@rule(aten.convolution.default)
def _convolution(
    b: OnnxBuilder,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> str:
    rank = x.rank
    attributes: dict[str, Any] = {
        "strides": _spatial(stride, rank),
        "pads": _spatial(padding, rank) * 2,
        "dilations": _spatial(dilation, rank),
        "group": groups,
    }
    if transposed:
        attributes["output_padding"] = _spatial(output_padding, rank)
    inputs = [x.name, weight.name, *([bias.name] if bias is not None else [])]
    return b.emit("ConvTranspose" if transposed else "Conv", *inputs, **attributes)


@rule(aten.addmm.default)
def _addmm(b: OnnxBuilder, c: Tensor, x: Tensor, y: Tensor, beta: Any = 1, alpha: Any = 1) -> str:
    require_floats(b)
    summand = [c.name] if beta else []  # 0 times NaN is 0 here
    return b.emit("Gemm", x.name, y.name, *summand, alpha=float(alpha), beta=float(beta))


@rule(aten.mm.default, aten.bmm.default)
def _matmul(b: OnnxBuilder, x: Tensor, y: Tensor) -> str:
    require_floats(b)
    return b.emit("MatMul", x.name, y.name)


def _window(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil_mode: bool
) -> dict[str, Any]:
    """Return the attributes that ONNX's pools share; torch's stride is the window's size where none is given."""
    size = _spatial(kernel, x.rank)
    return {
        "kernel_shape": size,
        "strides": _spatial(stride, x.rank) or size,
        "pads": _spatial(padding, x.rank) * 2,
        "ceil_mode": int(ceil_mode),
    }


@rule(aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)
def _max_pool(
    b: OnnxBuilder,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Names:
    require(not b.used[1], "the places of the maxima")
    require(x.rank in (4, 5), "no batch axis")
    window = _window(x, kernel, stride, padding, ceil_mode)
    return b.emit("MaxPool", x.name, dilations=_spatial(dilation, x.rank), **window), None


@rule(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default)
def _average_pool(
    b: OnnxBuilder,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> str:
    require(divisor is None, "a divisor")
    require(x.rank >= 3 and len(kernel) in (1, x.rank - 2), "no batch axis")
    window = _window(x, kernel, stride, padding, ceil_mode)
    return b.emit("AveragePool", x.name, count_include_pad=int(count_include_pad), **window)


@rule(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def _adaptive_average_pool(b: OnnxBuilder, x: Tensor, size: Sequence[int]) -> str:
    lengths = x.shape[x.rank - len(size) :]
    require(x.rank == len(size) + 2, "no batch axis")
    require(all(out and not n % out for n, out in zip(lengths, size, strict=True)), "windows of several sizes")
    if all(out == 1 for out in size):
        return b.emit("GlobalAveragePool", x.name)
    window = [n // out for n, out in zip(lengths, size, strict=True)]
    return b.emit("AveragePool", x.name, kernel_shape=window, strides=window)


@rule(aten.upsample_nearest2d.default)
def _upsample_nearest(b: OnnxBuilder, x: Tensor, size: Sequence[int], *scales: float | None) -> str:
    require_floats(b)
    lengths = x.shape[2:]
    places = [_nearest(n, out, scale) for n, out, scale in zip(lengths, size, scales, strict=True)]
    repeated = [np.arange(n).repeat(max(1, out // n)) for n, out in zip(lengths, size, strict=True)]
    if all(map(np.array_equal, places, repeated)):
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return b.emit("Resize", x.name, "", "", b.constant([*x.shape[:2], *size]), mode="nearest", **modes)
    rows = b.emit("Gather", x.name, b.constant(places[0]), axis=2)
    return b.emit("Gather", rows, b.constant(places[1]), axis=3)


def _nearest(n: int, out: int, scale: float | None) -> np.ndarray:
    """Return which of n elements torch takes for each of `out`: it multiplies in float32, where others divide."""
    if out in (n, 2 * n):
        return np.arange(out) * n // out
    step = np.float32(1 / scale) if scale else np.float32(n) / np.float32(out)
    return np.minimum(np.floor(np.arange(out, dtype=np.float32) * step).astype(np.int64), n - 1)


@rule(aten.upsample_bilinear2d.default)
def _upsample_bilinear(b: OnnxBuilder, x: Tensor, size: Sequence[int], align: bool, *scales: float | None) -> str:
    require_floats(b)
    for scale, out, n in zip(scales, size, x.shape[2:], strict=False):
        require(scale is None or out == n * scale, "a scale that is not the ratio of the sizes")
    sizes = b.constant([*x.shape[:2], *size])
    transformation = "align_corners" if align else "half_pixel"
    return b.emit("Resize", x.name, "", "", sizes, mode="linear", coordinate_transformation_mode=transformation)


@rule(aten._native_batch_norm_legit_no_training.default)
def _batch_norm(
    b: OnnxBuilder,
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    momentum: float,
    epsilon: float,
) -> Names:
    ones, zeros = np.ones(mean.shape), np.zeros(mean.shape)
    factor = scale.name if scale is not None else b.constant(ones, x.dtype)
    summand = shift.name if shift is not None else b.constant(zeros, x.dtype)
    inputs = (x.name, factor, summand, mean.name, variance.name)
    # it saves statistics of the batch, which are empty
    empty = [b.constant([], out.dtype) if used else None for out, used in zip(b.outputs[1:], b.used[1:], strict=True)]
    require(all(out.shape == (0,) for out in b.outputs[1:]), "statistics")
    return b.emit("BatchNormalization", *inputs, epsilon=epsilon), *empty


@rule(aten.native_layer_norm.default)
def _layer_norm(
    b: OnnxBuilder, x: Tensor, shape: Sequence[int], scale: Tensor | None, shift: Tensor | None, epsilon: float
) -> Names:
    require(x.dtype == torch.float32, "ONNX has the statistics of a norm in float32")
    factor = scale.name if scale is not None else b.constant(np.ones(shape), x.dtype)
    inputs = [x.name, factor, *([shift.name] if shift is not None else [])]
    result = b.emit("LayerNormalization", *inputs, axis=-len(shape), epsilon=epsilon)
    if not any(b.used[1:]):
        return result, None, None
    axes = b.constant(range(-len(shape), 0))
    mean = b.emit("ReduceMean", x.name, axes)
    difference = b.emit("Sub", x.name, mean)
    variance = b.emit("ReduceMean", b.emit("Mul", difference, difference), axes)
    deviation = b.emit("Sqrt", b.emit("Add", variance, b.constant(epsilon, x.dtype)))
    return result, mean, b.emit("Reciprocal", deviation)


@rule(aten.native_group_norm.default)
def _group_norm(
    b: OnnxBuilder,
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    epsilon: float,
) -> Names:
    require(not any(b.used[1:]), "statistics")
    ones, zeros = b.constant(np.ones(groups), x.dtype), b.constant(np.zeros(groups), x.dtype)
    grouped = b.emit("Reshape", x.name, b.constant([batch, groups, math.prod(x.shape[1:]) // groups]))
    normalized = b.emit("InstanceNormalization", grouped, ones, zeros, epsilon=epsilon)
    result = b.emit("Reshape", normalized, b.constant(x.shape))
    per_channel = b.constant([channels, *[1] * (x.rank - 2)])
    if scale is not None:
        result = b.emit("Mul", result, b.emit("Reshape", scale.name, per_channel))
    if shift is not None:
        result = b.emit("Add", result, b.emit("Reshape", shift.name, per_channel))
    return result, None, None


def _softmax(onnx_operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, axis: int, to_float: bool) -> str:
        require(x.rank > 0, "no axis")
        return b.emit(onnx_operator, x.name, axis=axis)

    return translate


RULES.update({aten._softmax.default: _softmax("Softmax"), aten._log_softmax.default: _softmax("LogSoftmax")})


@rule(aten._native_multi_head_attention.default)
def _multi_head_attention(
    b: OnnxBuilder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    output_weight: Tensor,
    output_bias: Tensor,
    mask: Tensor | None = None,
    *_: Any,
) -> Names:
    require(query == key == value, "attention to another sequence")
    require(mask is None and not b.used[1], "a mask, or the weights of the attention")
    projections = (weight, bias, output_weight, output_bias)
    return _self_attention(b, query.name, query, heads, projections), None


def _self_attention(b: OnnxBuilder, x: str, like: Tensor, heads: int, projections: Sequence[Tensor]) -> str:
    """Return the attention of a sequence [batch, length, width] to itself, of `like`'s type, projected."""
    batch, length, width = like.shape
    require(width % heads == 0 and width > 0, "heads of different widths")
    weight, bias, output_weight, output_bias = projections
    projected = _linear(b, x, weight, bias)
    shape = b.constant([batch, length, 3, heads, width // heads])
    split = b.emit("Transpose", b.emit("Reshape", projected, shape), perm=[2, 0, 3, 1, 4])
    query, key, value = (b.emit("Gather", split, b.constant(i), axis=0) for i in range(3))
    scaled = b.emit("Mul", query, b.constant(math.sqrt(heads / width), like.dtype))
    scores = b.emit("MatMul", scaled, b.emit("Transpose", key, perm=[0, 1, 3, 2]))
    mixed = b.emit("MatMul", b.emit("Softmax", scores, axis=-1), value)
    joined = b.emit("Reshape", b.emit("Transpose", mixed, perm=[0, 2, 1, 3]), b.constant(like.shape))
    return _linear(b, joined, output_weight, output_bias)


def _linear(b: OnnxBuilder, x: str, weight: Tensor, bias: Tensor) -> str:
    return b.emit("Add", b.emit("MatMul", x, b.emit("Transpose", weight.name, perm=[1, 0])), bias.name)


@rule(aten._transformer_encoder_layer_fwd.default)
def _transformer_encoder_layer(
    b: OnnxBuilder,
    x: Tensor,
    width: int,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    output_weight: Tensor,
    output_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    epsilon: float,
    scale1: Tensor,
    shift1: Tensor,
    scale2: Tensor,
    shift2: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    mask: Tensor | None = None,
    *_: Any,
) -> str:
    require(mask is None and x.rank == 3, "a mask, or no batch axis")
    require(x.dtype == torch.float32, "ONNX has the statistics of a norm in float32")
    projections = (weight, bias, output_weight, output_bias)

    def norm(name: str, scale: Tensor, shift: Tensor) -> str:
        return b.emit("LayerNormalization", name, scale.name, shift.name, axis=-1, epsilon=epsilon)

    def feed_forward(name: str) -> str:
        hidden = b.emit("Gelu" if use_gelu else "Relu", _linear(b, name, weight1, bias1))
        return _linear(b, hidden, weight2, bias2)

    if norm_first:
        attended = _self_attention(b, norm(x.name, scale1, shift1), x, heads, projections)
        total = b.emit("Add", x.name, attended)
        return b.emit("Add", total, feed_forward(norm(total, scale2, shift2)))
    total = norm(b.emit("Add", x.name, _self_attention(b, x.name, x, heads, projections)), scale1, shift1)
    return norm(b.emit("Add", total, feed_forward(total)), scale2, shift2)
