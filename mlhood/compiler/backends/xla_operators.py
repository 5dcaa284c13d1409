"""The operators in JAX: for each, a function of its attributes, its inputs' types and their arrays.

They compute what the operators' `evaluate` does, except that an index out of range is an error there only. Shapes are
known when a function is traced, so that those operators which only move elements, or only read shapes, share their
`evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mlhood.compiler.backends import xla_elements, xla_indexing, xla_sequences
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.activation import Activation, operator_of
from mlhood.compiler.operators.quantized import per_axis_array
from mlhood.compiler.operators.rescale import parameters_of
from mlhood.compiler.operators.windows import Window

Array = Any  # of JAX, or traced
Types = tuple[TensorType | None, ...]
Rule = Callable[..., Any]  # (operator, types, *arrays) -> array, or a tuple of several

_EXACT = lax.Precision.HIGHEST  # on the CPU, float32 products are in float32 anyway


def activate(y: Array, activation: Activation) -> Array:
    """Return the activation of y."""
    if not activation:
        return y
    operator = operator_of(activation)
    return RULES[operator.name](operator, (), y)


# -- products


def _convolve(x: Array, w: Array, operator: Any) -> Array:
    window = operator.window(w.shape)
    return lax.conv_general_dilated(
        *(x, w, window.strides, window.ends),
        rhs_dilation=window.dilations,
        feature_group_count=operator.group,
        precision=_EXACT,
    )


def _along_channels(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *(1,) * (rank - 2))


def _conv(operator: Any, types: Types, x: Array, w: Array, bias: Array = None, z: Array = None) -> Array:
    y = _convolve(x, w, operator)
    y = y if bias is None else y + _along_channels(bias, y.ndim)
    return activate(y if z is None else y + z, operator.activation)


def _conv_transpose(operator: Any, types: Types, x: Array, w: Array, bias: Array = None) -> Array:
    """Convolve the input, spread by the strides, with the kernel mirrored."""
    axes, group = len(operator.strides), operator.group
    grouped = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    mirrored = jnp.flip(grouped.reshape(group * w.shape[1], -1, *w.shape[2:]), tuple(range(2, x.ndim)))
    spans = [(size - 1) * dilation for size, dilation in zip(w.shape[2:], operator.dilations, strict=True)]
    ends = zip(spans, operator.pads[:axes], operator.pads[axes:], operator.output_pads, strict=True)
    y = lax.conv_general_dilated(
        *(x, mirrored, (1,) * axes, [(span - before, span - after + more) for span, before, after, more in ends]),
        lhs_dilation=operator.strides,
        rhs_dilation=operator.dilations,
        feature_group_count=group,
        precision=_EXACT,
    )
    return y if bias is None else y + _along_channels(bias, y.ndim)


def _matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=_EXACT)


def _gemm(operator: Any, types: Types, a: Array, b: Array, c: Array = None) -> Array:
    y = _matmul(a.T if operator.transpose_a else a, b.T if operator.transpose_b else b)
    y = y if operator.alpha == 1 else y * np.asarray(operator.alpha, a.dtype)
    return y if c is None else y + (c if operator.beta == 1 else c * np.asarray(operator.beta, a.dtype))


def _fully_connected(operator: Any, types: Types, x: Array, w: Array, bias: Array = None) -> Array:
    y = _matmul(x, w.T)
    return activate(y if bias is None else y + bias, operator.activation)


# -- pooling


def _windows(x: Array, window: Window, start: Any, combine: Callable[[Array, Array], Array]) -> Array:
    """Combine the elements of each window, the padding being `start`."""
    counts = window.output(x.shape[2:])
    ends = [(0, 0), (0, 0)]
    for size, n, stride, span, (before, after) in zip(
        x.shape[2:], counts, window.strides, window.spans, window.ends, strict=True
    ):
        ends.append((before, max(after, (int(n) - 1) * stride + span - size - before)))
    ones = (1, 1)
    sizes = (*ones, *window.kernel), (*ones, *window.strides)
    start = np.asarray(start, x.dtype)
    return lax.reduce_window(x, start, combine, *sizes, ends, window_dilation=(*ones, *window.dilations))


def _max_pool(operator: Any, types: Types, x: Array) -> Array:
    return _windows(x, operator.window, _lowest(x), lax.max)


def _average_pool(operator: Any, types: Types, x: Array) -> Array:
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    covered = operator.window.view(ones, 0, inner=1 if operator.count_pads else 0)
    count = covered.sum(axis=tuple(range(x.ndim, 2 * x.ndim - 2)), dtype=x.dtype)
    return _windows(x, operator.window, 0, lax.add) / count


def _lowest(x: Array) -> Any:
    return _extremes(x.dtype)[0]


def _extremes(dtype: Any) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    limits = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.asarray(limits[0], dtype), np.asarray(limits[1], dtype)


# -- normalisation


def _batch_normalization(
    operator: Any, types: Types, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Array:
    factor = scale / jnp.sqrt(variance + operator.epsilon)
    centred = x - _along_channels(mean, x.ndim)
    return centred * _along_channels(factor, x.ndim) + _along_channels(bias, x.ndim)


def _instance_normalization(operator: Any, types: Types, x: Array, scale: Array, bias: Array) -> Array:
    axes = tuple(range(2, x.ndim))
    centred = x - jnp.mean(x, axes, keepdims=True)
    spread = jnp.sqrt(jnp.mean(centred**2, axes, keepdims=True) + operator.epsilon)
    return centred / spread * _along_channels(scale, x.ndim) + _along_channels(bias, x.ndim)


def _layer_normalization(operator: Any, types: Types, x: Array, scale: Array, bias: Array = None) -> Any:
    axes = tuple(range(operator.axis % x.ndim, x.ndim))
    centre = jnp.mean(x.astype(np.float32), axes, keepdims=True)
    inverse = 1 / jnp.sqrt(jnp.mean((x - centre) ** 2, axes, keepdims=True) + operator.epsilon)
    y = (x - centre) * inverse * scale + (0 if bias is None else bias)
    return (y, centre, inverse) if operator.statistics else y


def _local_response_normalization(operator: Any, types: Types, x: Array) -> Array:
    before, after = (min(size, x.shape[1]) for size in ((operator.size - 1) // 2, operator.size // 2))
    squares = jnp.pad(x**2, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, i : i + x.shape[1]] for i in range(before + after + 1))
    return x / (operator.bias + operator.alpha / operator.size * total) ** operator.beta


# -- element by element


def _gelu(operator: Any, types: Types, x: Array) -> Array:
    return jax.nn.gelu(x, approximate=operator.approximate == "tanh")


def _elu(operator: Any, types: Types, x: Array) -> Array:
    return operator.gamma * jnp.where(x > 0, x, operator.alpha * jnp.expm1(jnp.minimum(x, 0)))


def _clip(operator: Any, types: Types, x: Array) -> Array:
    y = x if operator.low is None else jnp.maximum(x, np.asarray(operator.low, x.dtype))
    return y if operator.high is None else jnp.minimum(y, np.asarray(operator.high, x.dtype))


def _divide(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else lax.div(*jnp.broadcast_arrays(a, b))  # of integers, towards zero


def _power(operator: Any, types: Types, a: Array, b: Array) -> Array:
    base = a if a.dtype.kind == "f" else a.astype(np.float64)
    real = jnp.power(base, b.astype(base.dtype))
    integers = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    return jnp.where(b < 0, real.astype(a.dtype), jnp.power(a, b.astype(a.dtype))) if integers else real


# -- reductions


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return jnp.sum(x, axis=axis, keepdims=keepdims) / np.prod([x.shape[i] for i in axis], dtype=int).item()


def _log_sum_exp(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    return jax.nn.logsumexp(x if x.dtype.kind == "f" else x.astype(np.float64), axis=axis, keepdims=keepdims)


def _arg(function: Callable[..., Array]) -> Rule:
    def rule(operator: Any, types: Types, x: Array) -> Array:
        if not operator.last:
            return function(x, operator.axis, keepdims=operator.keep)
        return x.shape[operator.axis] - 1 - function(jnp.flip(x, operator.axis), operator.axis, keepdims=operator.keep)

    return rule


# -- movement


def _gather(operator: Any, types: Types, x: Array, indices: Array) -> Array:
    indices = jnp.where(indices < 0, indices + x.shape[operator.axis], indices)
    return jnp.take(x, indices, axis=operator.axis, mode="clip")


def _gather_nd(operator: Any, types: Types, x: Array, indices: Array) -> Array:
    rank, batch = indices.ndim - 1, operator.batch
    grid = np.ogrid[tuple(slice(size) for size in x.shape[:batch])] if batch else ()
    leading = [index.reshape(*index.shape, *(1,) * (rank - batch)) for index in grid]
    return x[(*leading, *jnp.moveaxis(indices, -1, 0))]


def _pad(operator: Any, types: Types, x: Array) -> Array:
    half = len(operator.pads) // 2
    ends = list(zip(operator.pads[:half], operator.pads[half:], strict=True))
    kept = [slice(max(-b, 0), size - max(-a, 0)) for size, (b, a) in zip(x.shape, ends, strict=True)]
    widths = [(max(before, 0), max(after, 0)) for before, after in ends]
    fill = {"constant_values": np.asarray(operator.value, x.dtype)} if operator.mode == "constant" else {}
    return jnp.pad(x[tuple(kept)], widths, mode=operator.mode, **fill)


# -- integers


def _quantize(operator: Any, types: Types, x: Array) -> Array:
    quantization, limits = operator.quantization, np.iinfo(operator.element)
    scale = per_axis_array(quantization.scale, quantization.axis, x.ndim, np.float32)
    offset = per_axis_array(quantization.offset, quantization.axis, x.ndim, np.float64)
    y = jnp.rint(x / scale).astype(np.float64) + offset
    return jnp.fmin(jnp.fmax(y, limits.min), limits.max)


def _dequantize(operator: Any, types: Any, x: Array) -> Array:
    quantization = parameters_of(types[0])
    scale = per_axis_array(quantization.scale, quantization.axis, x.ndim, np.float32)
    offset = per_axis_array(quantization.offset, quantization.axis, x.ndim, np.int64)
    return (x.astype(np.int64) - offset).astype(np.float32) * scale


def _conv_integer(operator: Any, types: Types, x: Array, w: Array) -> Array:
    of_w = per_axis_array(operator.w_offset, None if len(operator.w_offset) == 1 else 0, w.ndim, np.float64)
    return _wrapped(_convolve(x.astype(np.float64) - operator.x_offset, w - of_w, operator))


def _matmul_integer(operator: Any, types: Types, a: Array, b: Array) -> Array:
    of_a, of_b = operator.a_offset, operator.b_offset
    a = a - per_axis_array(of_a, None if len(of_a) == 1 else a.ndim - 2, a.ndim, np.float64)
    b = b - per_axis_array(of_b, None if len(of_b) == 1 else b.ndim - 1, b.ndim, np.float64)
    return _wrapped(_matmul(a, b))


def _wrapped(total: Array) -> Array:
    return total.astype(np.int64).astype(np.int32)


def _lookup(operator: Any, types: Any, x: Array) -> Array:
    return jnp.take(operator.table(types[0]), x.astype(np.int32) - np.iinfo(x.dtype).min, mode="clip")


# -- the table


def _shared(operator: Any, types: Types, *arrays: Array) -> Array:
    """Apply the reference semantics: it uses methods and shapes of arrays only, which JAX's have, too."""
    return operator.evaluate(*arrays)


def _plain(function: Callable[..., Array]) -> Rule:
    """Return the rule of an operator without attributes."""
    return lambda operator, types, *arrays: function(*arrays)


def _reduction(function: Callable[..., Array]) -> Rule:
    return lambda operator, types, x: function(x, axis=operator.axes, keepdims=operator.keep)


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _plain(_matmul),
    "Gemm": _gemm,
    "FullyConnected": _fully_connected,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _plain(lambda x: _mean(x, tuple(range(2, x.ndim)), True)),
    "GlobalMaxPool": _plain(lambda x: jnp.max(x, tuple(range(2, x.ndim)), keepdims=True)),
    "BatchNormalization": _batch_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LocalResponseNormalization": _local_response_normalization,
    "Softmax": lambda operator, types, x: jax.nn.softmax(x, operator.axes),
    "LogSoftmax": lambda operator, types, x: jax.nn.log_softmax(x, operator.axes),
    "AddActivation": lambda operator, types, a, b: activate(a + b, operator.activation),
    "LeakyRelu": lambda operator, types, x: jnp.where(x < 0, x * operator.alpha, x),
    "Elu": _elu,
    "HardSigmoid": lambda operator, types, x: jnp.clip(x * operator.alpha + operator.beta, 0, 1),
    "Gelu": _gelu,
    "Clip": _clip,
    "Relu": _plain(lambda x: jnp.maximum(x, 0)),
    "HardSwish": _plain(lambda x: x * jnp.clip(x / 6 + 0.5, 0, 1)),
    "Sigmoid": _plain(jax.nn.sigmoid),
    "Silu": _plain(jax.nn.silu),
    "Softplus": _plain(lambda x: jnp.logaddexp(x, 0)),
    "Softsign": _plain(lambda x: x / (1 + jnp.abs(x))),
    "Erf": _plain(jax.scipy.special.erf),
    "Neg": _plain(jnp.negative),
    "Not": _plain(jnp.logical_not),
    "Reciprocal": _plain(lambda x: 1 / x),
    "Round": _plain(jnp.rint),
    "Div": _plain(_divide),
    "PRelu": _plain(lambda a, b: jnp.where(a < 0, a * b, a)),
    "Pow": _power,
    "Where": _plain(jnp.where),
    "Cast": lambda operator, types, x: x.astype(operator.element),
    "ReduceMean": _reduction(_mean),
    "ReduceSum": _reduction(jnp.sum),
    "ReduceProd": _reduction(jnp.prod),
    "ReduceMax": _reduction(lambda x, **axes: jnp.max(x, initial=_extremes(x.dtype)[0], **axes)),
    "ReduceMin": _reduction(lambda x, **axes: jnp.min(x, initial=_extremes(x.dtype)[1], **axes)),
    "ReduceL1": _reduction(lambda x, **axes: jnp.sum(jnp.abs(x), **axes)),
    "ReduceL2": _reduction(lambda x, **axes: jnp.sqrt(jnp.sum(x * x, **axes))),
    "ReduceSumSquare": _reduction(lambda x, **axes: jnp.sum(x * x, **axes)),
    "ReduceLogSum": _reduction(lambda x, **axes: jnp.log(jnp.sum(x, **axes))),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ArgMax": _arg(jnp.argmax),
    "ArgMin": _arg(jnp.argmin),
    "Squeeze": lambda operator, types, x: jnp.squeeze(x, operator.axes),
    "Unsqueeze": lambda operator, types, x: jnp.expand_dims(x, operator.axes),
    "Concat": lambda operator, types, *arrays: jnp.concatenate(arrays, operator.axis),
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Expand": lambda operator, types, x: jnp.broadcast_to(x, np.broadcast_shapes(x.shape, operator.shape)),
    "Tile": lambda operator, types, x: jnp.tile(x, operator.repeats),
    "Pad": _pad,
    "Quantize": _quantize,
    "Dequantize": _dequantize,
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
    "Lookup": _lookup,
}
_SHARED = ("Identity", "Reinterpret", "Reshape", "Flatten", "Transpose", "Slice", "Splat", "Shape", "Size")
RULES |= dict.fromkeys(_SHARED, _shared)
RULES |= xla_sequences.RULES
RULES |= {
    name: _plain(getattr(jnp, name.lower()))
    for name in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Log", "Sign", "Sin", "Sqrt", "Tanh", "Equal", "Greater", "Less")
}
RULES |= {
    name: _plain(function)
    for name, function in (
        ("Add", jnp.add),
        ("Sub", jnp.subtract),
        ("Mul", jnp.multiply),
        ("Max", jnp.maximum),
        ("Min", jnp.minimum),
        ("And", jnp.logical_and),
        ("Or", jnp.logical_or),
        ("Xor", jnp.logical_xor),
        ("GreaterOrEqual", jnp.greater_equal),
        ("LessOrEqual", jnp.less_equal),
    )
}
RULES |= xla_elements.RULES | xla_indexing.RULES
