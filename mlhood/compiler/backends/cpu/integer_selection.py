"""The choice of kernels for quantised operators on bytes; their integers are those of the interpreter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.machine import CpuSetup, Rule, Selection, constant, shape, unary
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.lir.instructions import Buffer, Compute
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.blocked import (
    BlockedMaxPool,
    BlockedQuantizedAveragePool,
    BlockedQuantizedConv,
    BlockedQuantizedGlobalAveragePool,
)
from mlhood.compiler.operators.fixed_point import fixed_points
from mlhood.compiler.operators.integer import QuantizedFullyConnected
from mlhood.compiler.operators.integer_elementwise import Lookup, QuantizedAdd
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale, bit_width, max_magnitude, parameters_of, stored_range
from mlhood.kernels import int8_conv, int8_depthwise, int8_flat, int8_pool
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.native import NativeCall
from mlhood.kernels.requantize import Rescaling, Shifts
from mlhood.kernels.windows import Windows

_ACCUMULATOR_BITS = 31


def select_integers(instruction: Compute, machine: CpuSetup) -> Selection | None:
    """Return the native calls of an instruction on bytes; None if there is no kernel for it."""
    rule = INTEGER_RULES.get(type(instruction.operator))
    types = [buffer.type for buffer in (*instruction.results, *instruction.inputs[:1]) if buffer is not None]
    are_bytes = all(type.dtype.itemsize == 1 or type.element == "float32" for type in types)
    per_tensor = all(type.quantization is None or type.quantization.axis is None for type in types)
    if rule is None or not are_bytes or not per_tensor or any(0 in shape(b) for b in instruction.reads):
        return None
    return rule(instruction.operator, instruction, machine)


# -- rescaling


def rescaling_of(
    terms: Sequence[tuple[np.ndarray, int]],
    y: TensorType,
    activation: Activation = (),
    z: TensorType | None = None,
    bound: int = 2**31,
) -> Rescaling:
    """Return how a kernel rescales a sum of terms to the type of a result, as `operators.rescale.requantize` does.

    Args:
        terms: The scale of each term, and its bits.
        y: The result's type.
        activation: None, Relu, Clip or LeakyRelu.
        z: Type of the second term.
        bound: Of the magnitude of the first term.
    """
    of_y = parameters_of(y)

    def shifts(factor: float) -> Shifts:
        scales = [np.asarray(scale * factor / of_y.scale[0], np.float64) for scale, _ in terms]
        return Shifts(*fixed_points(scales, [bits for _, bits in terms]))

    low, high = stored_range(y, activation)
    negative = shifts(float(activation[1] or 0)) if activation and activation[0] == "LeakyRelu" else None
    offset, z_offset = int(of_y.offset[0]), 0 if z is None else int(parameters_of(z).offset[0])
    limits = {"low": low, "high": high, "z_offset": z_offset, "bound": bound}
    return Rescaling(y.element, offset, shifts(1.0), None, negative, **limits)


def _term(type: TensorType) -> tuple[np.ndarray, int]:
    return np.array(parameters_of(type).scale[0]), bit_width(max_magnitude(type))


def _product_term(x: TensorType, w: TensorType) -> tuple[np.ndarray, int]:
    return np.array(parameters_of(w).scale) * parameters_of(x).scale[0], _ACCUMULATOR_BITS


def _weights(x: TensorType, weight: Buffer, bias: Buffer | None, limits: tuple[int, ...]) -> Int8Weights | None:
    w, b = constant(weight), constant(bias)
    if w is None or w.dtype.itemsize != 1 or (bias is not None and b is None):
        return None
    offsets = np.array(parameters_of(weight.type).offset, np.int64)
    zero_point = int(offsets[0]) if offsets.size == 1 else offsets
    x_limits = (limits[0], limits[1]) if limits else None
    return Int8Weights(w, zero_point, int(parameters_of(x).offset[0]), b, x_limits)


# -- layers


def _convolution(operator: BlockedQuantizedConv, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, weight, bias, z = (*instruction.inputs, None, None)[:4]
    result = instruction.results[0]
    if x is None or weight is None or operator.lanes != BLOCK:
        return None
    weights = _weights(x.type, weight, bias, operator.input_limits)
    if weights is None:
        return None
    if operator.rescale == "real":
        scale = np.asarray(_product_term(x.type, weight.type)[0] / operator.quantization.scale[0])
        rescaling = Rescaling(result.type.element, int(operator.quantization.offset[0]), scale=scale)
    else:
        terms = [_product_term(x.type, weight.type)]
        terms += [] if z is None else [_term(z.type)]
        rescaling = rescaling_of(terms, result.type, operator.activation, None if z is None else z.type)
    sizes, window = shape(x), (operator.strides, operator.pads, operator.dilations)
    strides, pads, dilations = (_tuple(values) for values in window)
    kernel = _tuple(weights.w.shape[2:])
    channels = weights.w.shape[1] * operator.group
    g = Geometry(
        sizes[0], channels, sizes[2], sizes[3], len(weights.w), kernel, strides, pads, dilations, operator.group
    )
    options = machine.options
    if g.groups == g.channels == g.filters and g.groups > 1:
        call = int8_depthwise.prepare_depthwise(g, weights, rescaling, **options)
    else:
        layout = "plain" if operator.plain_input else "blocked"
        call = int8_conv.prepare_conv(g, weights, rescaling, layout, **options)
    return Selection((call,), {"source": x, "out": result} | ({} if z is None else {"residual": z}))


def _tuple(values: Sequence[int]) -> Any:
    return tuple(int(value) for value in values)


def _dense(operator: QuantizedFullyConnected, instruction: Compute, machine: CpuSetup) -> Selection | None:
    x, weight, bias = (*instruction.inputs, None)[:3]
    result = instruction.results[0]
    weights = None if x is None or weight is None else _weights(x.type, weight, bias, ())
    if x is None or weight is None or weights is None:
        return None
    rescaling = rescaling_of([_product_term(x.type, weight.type)], result.type, operator.activation)
    rows = math.prod(shape(x)[:-1])
    call = int8_conv.prepare_dense(rows, weights, rescaling, **machine.options)
    return Selection((call,), {"source": x, "out": result})


# -- element by element


def _rescale(operator: Rescale, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall:
    rescaling = rescaling_of([_term(x.type)], y.type, operator.activation, bound=255)
    offset = int(parameters_of(x.type).offset[0])
    return int8_flat.prepare_rescale(math.prod(shape(x)), offset, rescaling, **machine.options)


def _add(operator: QuantizedAdd, instruction: Compute, machine: CpuSetup) -> Selection | None:
    a, b = (buffer for buffer in instruction.inputs if buffer is not None)
    y = instruction.results[0]
    if shape(a) != shape(b) or constant(a) is not None or constant(b) is not None or a is b:
        return None
    rescaling = rescaling_of([_term(a.type), _term(b.type)], y.type, operator.activation, b.type, bound=255)
    offset = int(parameters_of(a.type).offset[0])
    call = int8_flat.prepare_rescale(math.prod(shape(a)), offset, rescaling, **machine.options)
    return Selection((call,), {"x": a, "residual": b, "out": y})


def _lookup(operator: Lookup, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall:
    return int8_flat.prepare_lookup(math.prod(shape(x)), operator.table(x.type), **machine.options)


def _quantize(operator: Quantize, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall | None:
    if x.type.element != "float32":
        return None
    scale, offset = float(operator.quantization.scale[0]), int(operator.quantization.offset[0])
    return int8_flat.prepare_quantize(math.prod(shape(x)), scale, offset, operator.element, **machine.options)


def _dequantize(operator: Dequantize, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall | None:
    if x.type.element not in ("int8", "uint8"):
        return None
    scale, offset = float(parameters_of(x.type).scale[0]), int(parameters_of(x.type).offset[0])
    return int8_flat.prepare_dequantize(math.prod(shape(x)), scale, offset, x.type.element, **machine.options)


# -- pooling


def _max_pool(operator: BlockedMaxPool, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall | None:
    if shape(x)[-1] != BLOCK or x.type.dtype.itemsize != 1:
        return None
    return int8_pool.prepare_max_pool(windows_of(operator, x, y), x.type.element, target=machine.target)


def _average_pool(operator: BlockedQuantizedAveragePool, x: Buffer, y: Buffer, machine: CpuSetup) -> NativeCall | None:
    if shape(x)[-1] != BLOCK:
        return None
    ones = np.ones((1, 1, *shape(x)[2:4]), np.int64)
    counts = operator.window.view(ones, 0, inner=1 if operator.count_pads else 0).sum(axis=(4, 5))[0, 0]
    return _sum_pool(windows_of(operator, x, y), counts, math.prod(operator.kernel), x, y, machine)


def _global_pool(
    operator: BlockedQuantizedGlobalAveragePool, x: Buffer, y: Buffer, machine: CpuSetup
) -> NativeCall | None:
    batch, blocks, high, wide, lanes = shape(x)
    if lanes != BLOCK:
        return None
    over = Windows(batch * blocks, (high, wide), (1, 1), (high, wide), (1, 1), (1, 1), (0, 0, 0, 0))
    return _sum_pool(over, np.array([[high * wide]]), high * wide, x, y, machine)


def _sum_pool(
    windows: Windows, counts: np.ndarray, largest: int, x: Buffer, y: Buffer, machine: CpuSetup
) -> NativeCall:
    bound = largest * max_magnitude(x.type)
    scale, bits = parameters_of(x.type).scale[0], bit_width(bound)
    rescalings = {
        int(count): rescaling_of([(np.array(scale / max(int(count), 1)), bits)], y.type, bound=bound)
        for count in np.unique(counts)
    }
    offset = int(parameters_of(x.type).offset[0])
    return int8_pool.prepare_sum_pool(windows, offset, rescalings, counts, target=machine.target)


def windows_of(operator: Any, x: Buffer, y: Buffer) -> Windows:
    """Return the windows of a pooling of blocked activations."""
    batch, blocks, high, wide, _ = shape(x)
    window = operator.window
    sizes: Any = shape(y)[2:4], window.kernel, window.strides, window.dilations, window.pads
    return Windows(batch * blocks, (high, wide), *sizes)


INTEGER_RULES: dict[type[Operator], Rule] = {
    BlockedQuantizedConv: _convolution,
    BlockedQuantizedAveragePool: unary(_average_pool),
    BlockedQuantizedGlobalAveragePool: unary(_global_pool),
    BlockedMaxPool: unary(_max_pool),
    QuantizedFullyConnected: _dense,
    QuantizedAdd: _add,
    Rescale: unary(_rescale),
    Lookup: unary(_lookup),
    Quantize: unary(_quantize),
    Dequantize: unary(_dequantize),
}
