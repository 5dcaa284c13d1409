"""Operators on quantised tensors, bit for bit as their reference semantics: see `operators.rescale`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.backends.c.kernel import (
    CKernel,
    Lines,
    broadcast_strides,
    c_type,
    less,
    shape_of,
    strides_of,
    suffix,
    table,
    visit,
)
from mlhood.compiler.backends.c.pooling import counted_windows, global_pool
from mlhood.compiler.backends.c.products import Sum, convolution, dense
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.fixed_point import MULTIPLIER_BITS, fixed_points
from mlhood.compiler.operators.rescale import _WIDEST, bit_width, max_magnitude, parameters_of, stored_range


@dataclass(frozen=True)
class Part:
    """One term of a sum that is rescaled: an expression, its scale, and the bound of its values, 2^bits.

    Args:
        text: An expression of C for the integer.
        scale: float64: one number, or one for each index that `place` is.
        bits: See `operators.rescale.Term`.
    """

    text: str
    scale: np.ndarray
    bits: int


def _tables(parts: Sequence[Part], factor: float, type: TensorType, prefix: str) -> tuple[Lines, list[str], str]:
    """Return the tables of multipliers and shifts, and how each multiplier and the shift are read at {f}."""
    widest = MULTIPLIER_BITS if type.dtype.itemsize == 1 else _WIDEST
    scales = [np.asarray(part.scale * factor / parameters_of(type).scale[0], np.float64) for part in parts]
    multipliers, shift = fixed_points(scales, [part.bits for part in parts], widest)
    lines, reads = [], []
    for position, values in enumerate([*multipliers, shift]):
        last = position == len(multipliers)
        name = f"{prefix}shift" if last else f"{prefix}multiplier{position or ''}"
        flat = np.ravel(values)
        if (flat == flat[0]).all():
            reads.append(f"{'' if last else 'INT64_C'}{f'({flat[0]})' if not last else flat[0]}")
        else:
            lines += table(name, flat.tolist(), "int64" if not last and np.abs(flat).max() >= 2**31 else "int32")
            reads.append(f"{name}[{{f}}]")
    return lines, reads[:-1], reads[-1]


def rescaled(
    parts: Sequence[Part], type: TensorType, activation: Activation
) -> tuple[Lines, Callable[[str, str], Lines]]:
    """Return the tables, and what stores the rescaled sum of the parts, given the index of y and that of the scale."""
    lines, multipliers, shift = _tables(parts, 1.0, type, "")
    leaky = activation[0] == "LeakyRelu" if activation else False
    negative, slopes, slope_shift = (
        _tables(parts, float(activation[1] or 0), type, "negative_") if leaky else ([], [], "")
    )
    low, high = stored_range(type, activation)
    offset = less(-parameters_of(type).offset[0])

    def total(factors: Sequence[str], f: str) -> str:
        pairs = zip(parts, factors, strict=True)
        return " + ".join(f"{part.text} * {factor.format(f=f)}" for part, factor in pairs)

    def store(place: str, f: str) -> Lines:
        statements = [f"const int64_t total = {total(multipliers, f)};"]
        value = f"round_shift(total, {shift.format(f=f)})"
        if leaky:
            value = f"(total < 0 ? round_shift({total(slopes, f)}, {slope_shift.format(f=f)}) : {value})"
        return [*statements, f"y[{place}] = ({c_type(type)})clamp({value}{offset}, {low}, {high});"]

    return [*lines, *negative], store


def _factor(name: str, index: str, offsets: Sequence[int], channel: str, table_name: str) -> str:
    """Return stored - offset, with an offset that may vary by channel."""
    if len(set(offsets)) == 1:
        return f"{name}[{index}]" if offsets[0] == 0 else f"({name}[{index}]{less(offsets[0])})"
    return f"({name}[{index}] - {table_name}[{channel}])"


def _offset_table(name: str, offsets: Sequence[int]) -> Lines:
    return table(name, offsets, "int32") if len(set(offsets)) > 1 else []


def _fits(kernel: CKernel, depth: int) -> bool:
    """Return whether a sum of products, and the bias if it is known, fits into int32."""
    bias = kernel.constants[2] if kernel.has(2) and len(kernel.constants) > 2 else None
    if kernel.has(2) and bias is None:
        return False
    extra = 0 if bias is None or not bias.size else int(np.abs(bias.astype(np.int64)).max())
    return depth * max_magnitude(kernel.x) * max_magnitude(kernel.input(1)) + extra < 2**31


def _accumulator(kernel: CKernel, depth: int) -> tuple[str, str]:
    """Return the type of the sum, and the sum as int64: of 8-bit factors, as what wraps around at 32 bits."""
    if kernel.x.dtype.itemsize > 1:
        return "int64_t", "sum"
    if _fits(kernel, depth):
        return "int32_t", "(int64_t)sum"
    return "int64_t", "(int64_t)(int32_t)(uint32_t)sum"


def _layer(kernel: CKernel, loops: Callable[[CKernel, Sum], Lines]) -> Lines:
    """Return a quantised convolution or dense layer that is rescaled with integers."""
    x, w, operator = kernel.x, kernel.input(1), kernel.operator
    of_x, of_w, depth = parameters_of(x), parameters_of(w), int(np.prod(shape_of(w)[1:]))
    type, acc = _accumulator(kernel, depth)
    bits = 31 if x.dtype.itemsize == 1 else bit_width(depth * max_magnitude(x) * max_magnitude(w) + 2**31)
    parts = [Part(acc, np.array(of_w.scale) * of_x.scale[0], bits)]
    activation: Activation = getattr(operator, "activation", ())
    if kernel.has(3):
        z = kernel.input(3)
        text = f"((int64_t){{z}}{less(parameters_of(z).offset[0])})"
        parts.append(Part(text, np.array(parameters_of(z).scale[0]), bit_width(max_magnitude(z))))
    tables, store = rescaled(parts, kernel.y, activation)

    def finish(place: str, f: str) -> Lines:
        return [line.replace("{z}", f"z[{place}]") for line in store(place, f)]

    return [*_offset_table("offset", of_w.offset), *tables, *loops(kernel, _sum(kernel, type, finish))]


def _sum(kernel: CKernel, type: str, finish: Callable[[str, str], Lines]) -> Sum:
    of_x, of_w = parameters_of(kernel.x), parameters_of(kernel.input(1))
    cast = "(int64_t)" if type == "int64_t" else ""
    return Sum(
        type,
        lambda f: f"bias[{f}]" if kernel.has(2) else "0",
        lambda i, j, f: f"{cast}{_factor('x', i, of_x.offset, f, '')} * {_factor('w', j, of_w.offset, f, 'offset')}",
        finish,
    )


def quantized_conv(kernel: CKernel) -> Lines:
    """Return a QuantizedConv, rescaled by shifts, or by a real number as ONNX specifies QLinearConv."""
    operator = kernel.operator
    if operator.rescale == "shift":
        return _layer(kernel, convolution)
    of_x, of_w = parameters_of(kernel.x), parameters_of(kernel.input(1))
    type, _ = _accumulator(kernel, int(np.prod(shape_of(kernel.input(1))[1:])))
    scale = np.array(of_w.scale) * of_x.scale[0] / operator.quantization.scale[0]

    def finish(place: str, f: str) -> Lines:
        return _real(kernel, place, f"scale[{f}]" if scale.size > 1 else "scale[0]")

    lines = [*_offset_table("offset", of_w.offset), *table("scale", scale.tolist(), "float64")]
    return [*lines, *convolution(kernel, _sum(kernel, type, finish))]


def _real(kernel: CKernel, place: str, scale: str) -> Lines:
    offset = less(-parameters_of(kernel.y).offset[0])
    return [f"y[{place}] = to_{suffix(kernel.y)}(rint((int32_t)(uint32_t)sum * {scale}){offset});"]


def quantized_fully_connected(kernel: CKernel) -> Lines:
    """Return a QuantizedFullyConnected."""
    return _layer(kernel, dense)


def _stored(name: str, place: str, type: TensorType) -> str:
    """Return stored - offset as an int64."""
    return f"((int64_t){name}[{place}]{less(parameters_of(type).offset[0])})"


def pair(kernel: CKernel) -> Lines:
    """Return a QuantizedAdd or QuantizedMul."""
    a, b, wide = kernel.x, kernel.input(1), shape_of(kernel.y)
    scales = [np.array(parameters_of(type).scale[0]) for type in (a, b)]
    if kernel.operator.name == "QuantizedMul":
        parts = [Part("({a} * {b})", scales[0] * scales[1], bit_width(max_magnitude(a) * max_magnitude(b)))]
    else:
        bits = [bit_width(max_magnitude(type)) for type in (a, b)]
        parts = [Part("{a}", scales[0], bits[0]), Part("{b}", scales[1], bits[1])]
    tables, store = rescaled(parts, kernel.y, getattr(kernel.operator, "activation", ()))

    def body(places: list[str]) -> Lines:
        words = {"{a}": _stored("a", places[0], a), "{b}": _stored("b", places[1], b)}
        lines = store(places[2], "0")
        for word, text in words.items():
            lines = [line.replace(word, text) for line in lines]
        return lines

    strides = [broadcast_strides(shape_of(type), wide) for type in (a, b)]
    return [*tables, *visit(wide, [*strides, strides_of(wide)], body)]


def rescale(kernel: CKernel) -> Lines:
    """Return a Rescale."""
    wide, x = shape_of(kernel.y), kernel.x
    part = Part("{x}", np.array(parameters_of(x).scale[0]), bit_width(max_magnitude(x)))
    tables, store = rescaled([part], kernel.y, getattr(kernel.operator, "activation", ()))

    def body(places: list[str]) -> Lines:
        return [line.replace("{x}", _stored("x", places[0], x)) for line in store(places[1], "0")]

    return [*tables, *visit(wide, [strides_of(wide)] * 2, body)]


def lookup(kernel: CKernel) -> Lines:
    """Return a Lookup: a table of 256 entries, the first for the smallest value of x."""
    operator, wide = kernel.operator, shape_of(kernel.y)
    entries = operator.table(kernel.x)
    smallest = int(np.iinfo(kernel.x.dtype).min)

    def body(places: list[str]) -> Lines:
        return [f"y[{places[1]}] = entries[x[{places[0]}]{less(smallest)}];"]

    return [*table("entries", entries.tolist(), kernel.y.element), *visit(wide, [strides_of(wide)] * 2, body)]


def quantized_average_pool(kernel: CKernel) -> Lines:
    """Return a QuantizedAveragePool: the scale depends on how many elements a window has, so the tables do."""
    size = int(np.prod(getattr(kernel.operator, "kernel", (1,))))
    scale = parameters_of(kernel.x).scale[0] / np.maximum(np.arange(size + 1), 1)
    tables, store = rescaled([Part("sum", scale, bit_width(size * max_magnitude(kernel.x)))], kernel.y, ())
    return [*tables, *counted_windows(kernel, lambda place: store(place, "count"), parameters_of(kernel.x).offset[0])]


def quantized_global_average_pool(kernel: CKernel) -> Lines:
    """Return a QuantizedGlobalAveragePool."""
    count = int(np.prod(shape_of(kernel.x)[2:]))
    scale = np.array(parameters_of(kernel.x).scale[0] / max(count, 1))
    tables, store = rescaled([Part("sum", scale, bit_width(count * max_magnitude(kernel.x)))], kernel.y, ())
    step = f"sum += {{x}}{less(parameters_of(kernel.x).offset[0])};"
    return [*tables, *global_pool(kernel, ["int64_t sum = 0;"], step, lambda place: store(place, "0"))]
