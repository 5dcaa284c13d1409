"""Stages: what the neural processor computes for a node of a graph, with all numbers that its instructions need.

A node becomes one stage, or two: a convolution with a residual branch leaves its sums to an `add`. Rescaling must be a
shift, so scales must be powers of two, and offsets 0; the results are then exactly the interpreter's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.fixed_point import fixed_points
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected
from mlhood.compiler.operators.integer_elementwise import (
    QuantizedAdd,
    QuantizedAveragePool,
    QuantizedGlobalAveragePool,
)
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.rescale import Rescale, bit_width, max_magnitude, parameters_of, stored_range
from mlhood.compiler.operators.shape import Reshape
from mlhood.errors import CompilerError

KINDS = ("conv", "depthwise", "dense", "max", "mean", "add", "rescale")
ALIASES = (Reshape,)  # the same bytes under another shape
_MULTIPLYING = ("conv", "dense")
_MOST_BITS = 60  # of a sum that is shifted left, so that int64 holds it
_SHIFTS = range(-31, 63)


@dataclass(frozen=True)
class NmpWindow:
    """A window in rows and columns: kernel, strides, dilations, and the padding above and to the left."""

    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.kernel[0] * self.kernel[1]


@dataclass(frozen=True)
class NmpStage:
    """A computation on one image; for a dense layer, all rows are one image of one column.

    Args:
        kind: One of `KINDS`.
        element: Bytes of an element of its input and output, 1 or 2.
        channels: Of the input.
        height: Rows of the input.
        width: Columns of the input.
        filters: Channels of the output.
        out_height: Rows of the output.
        out_width: Columns of the output.
        window: Of the input.
        shift: Of the rescaling; see `isa.computations`.
        low: Smallest result.
        high: Largest result.
        multiplier: Of a mean.
        a_shift: Bits by which the first operand of an `add` is shifted left.
        b_shift: The same for the second.
        wide: Whether the first operand of an `add` are accumulators; whether a product leaves them.
    """

    kind: str
    element: int
    channels: int
    height: int
    width: int
    filters: int
    out_height: int
    out_width: int
    window: NmpWindow = field(default_factory=NmpWindow)
    shift: int = 0
    low: int = 0
    high: int = 0
    multiplier: int = 1
    a_shift: int = 0
    b_shift: int = 0
    wide: bool = False

    @property
    def multiplies(self) -> bool:
        """Whether each output reads all input channels, which may be sliced."""
        return self.kind in _MULTIPLYING

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        depth = self.channels if self.multiplies else int(self.kind == "depthwise")
        return self.filters * self.out_height * self.out_width * depth * self.window.taps

    def weight_bytes(self, filters: int, channels: int, first: bool = True) -> int:
        """Return the bytes of bias and weights for a slice."""
        match self.kind:
            case "conv" | "dense":
                return filters * (4 * first + channels * self.window.taps * self.element)
            case "depthwise":
                return filters * (4 + self.window.taps * self.element)
        return 0


@dataclass(frozen=True)
class NmpWork:
    """A stage with its arrays.

    Args:
        stage: The stage.
        weights: [filters, channels, kernel], or [channels, kernel] of a depthwise one.
        bias: int32 [filters].
        operand: The second operand of an `add`.
    """

    stage: NmpStage
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    operand: Value | None = None


def unsupported(node: Node) -> str | None:
    """Return why the neural processor cannot run a node; None if it can."""
    try:
        works_of(node)
    except CompilerError as error:
        return error.one_line()
    return None


def is_alias(node: Node) -> bool:
    """Return whether a node's result has the same bytes as its input, so that nothing is computed."""
    x = node.inputs[0]
    is_integer = x is not None and x.type.element in ("int8", "int16") and x.type.quantization is not None
    return isinstance(node.operator, ALIASES) and is_integer


def works_of(node: Node) -> tuple[NmpWork, ...]:
    """Return what is computed for a node, in order; nothing for an alias.

    Raises:
        CompilerError: The processor cannot run the node; the error says why.
    """
    if is_alias(node):
        return ()
    rule = _RULES.get(type(node.operator))
    if rule is None:
        raise CompilerError("the neural processor has no instruction for this operator", got=node.operator.name)
    types = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    if any(not isinstance(n, int) for each in types for n in each.shape):
        raise CompilerError("lengths of axes must be known", got=", ".join(str(list(t.shape)) for t in types))
    y = node.outputs[0].type
    for each in (t for t in types if t.element != "int32"):
        if each.element not in ("int8", "int16") or each.element != y.element:
            raise CompilerError("elements must be int8 or int16, all the same", got=each.element)
        if any(parameters_of(each).offset):
            raise CompilerError("offsets must be 0: quantise with power_of_two", got=parameters_of(each).offset[0])
    return rule(node)


def _scale(type: TensorType) -> float:
    scales = set(parameters_of(type).scale)
    if len(scales) > 1:
        raise CompilerError("a weight must have one scale, not one for each channel", got=f"{len(scales)} scales")
    return scales.pop()


def _exponent(scale: float) -> int:
    """Return the e for which the scale is 2^e."""
    mantissa, exponent = math.frexp(scale)
    if mantissa != 0.5:
        raise CompilerError("rescaling must be a shift: quantise with power_of_two", got=f"a factor of {scale:.6g}")
    return exponent - 1


def _shift(ratio: float) -> int:
    """Return the shift to the right that multiplies by a ratio of scales."""
    shift = -_exponent(ratio)
    if shift not in _SHIFTS:
        raise CompilerError("the shift is too large", expected=f"{_SHIFTS[0]} to {_SHIFTS[-1]}", got=shift)
    return shift


def _sum_shifts(ratios: Sequence[float], bits: Sequence[int]) -> tuple[int, int, int]:
    """Return the left shifts of two terms, and the right shift of their sum, so that it is rounded once."""
    exponents = [_exponent(ratio) for ratio in ratios]
    shift = max(0, -min(exponents))
    left = [exponent + shift for exponent in exponents]
    widest = max(size + by for size, by in zip(bits, left, strict=True))
    if widest > _MOST_BITS or shift not in _SHIFTS or abs(exponents[0] - exponents[1]) > 28:
        raise CompilerError("the scales of the two terms of a sum are too far apart", got=f"2^{exponents}")
    return left[0], left[1], shift


def _image(type: TensorType) -> tuple[int, int, int]:
    """Return channels, rows and columns of an image, of each image of a batch, or of any other tensor as an image."""
    shape = tuple(int(n) for n in type.shape)
    if len(shape) == 4:
        return shape[1:]  # type: ignore[return-value]
    shape = (1, 1, 1, *shape)
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def images(type: TensorType) -> int:
    """Return how many images a tensor has: the batch of four axes, otherwise one."""
    return int(type.shape[0]) if type.rank == 4 else 1


def _sizes(x: TensorType, y: TensorType) -> dict[str, Any]:
    names = ("channels", "height", "width", "filters", "out_height", "out_width")
    return dict(zip(names, (*_image(x), *_image(y)), strict=True)) | {"element": y.dtype.itemsize}


def _limits(y: TensorType, activation: Any = ()) -> dict[str, Any]:
    if activation and activation[0] not in ("Relu", "Clip"):
        raise CompilerError("an activation must be Relu or Clip", got=activation[0])
    low, high = stored_range(y, activation)
    return {"low": low, "high": high}


def _window(operator: Any, kernel: Sequence[int]) -> NmpWindow:
    if len(kernel) != 2:
        raise CompilerError("windows must have two axes", got=f"{len(kernel)}")
    pads = operator.pads[:2]
    return NmpWindow(*(tuple(int(n) for n in part) for part in (kernel, operator.strides, operator.dilations, pads)))  # type: ignore[arg-type]


def _constants(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights, and the bias as int32, zeros if it is left out."""
    _, w, bias, *_ = (*node.inputs, None)
    if not isinstance(w, Constant) or not (bias is None or isinstance(bias, Constant)):
        raise CompilerError("weights must be constant")
    return w.data, np.zeros(len(w.data), np.int32) if bias is None else bias.data


def _product_shift(node: Node) -> float:
    x, w, y = node.inputs[0], node.inputs[1], node.outputs[0]
    return _scale(x.type) * _scale(w.type) / _scale(y.type)  # type: ignore[union-attr]


def _conv(node: Node) -> tuple[NmpWork, ...]:
    operator, x, y = node.operator, node.inputs[0].type, node.outputs[0].type  # type: ignore[union-attr]
    if operator.rescale != "shift":  # type: ignore[attr-defined]
        raise CompilerError("rounding must be by shifts, ties up", got=f"rescale={operator.rescale!r}")  # type: ignore[attr-defined]
    if x.rank != 4:
        raise CompilerError("convolutions must have two axes", got=f"{x.rank - 2}")
    weights, bias = _constants(node)
    group, ratio = operator.group, _product_shift(node)  # type: ignore[attr-defined]
    sizes, window = _sizes(x, y), _window(operator, weights.shape[2:])
    operand = node.inputs[3] if len(node.inputs) == 4 else None
    limits = _limits(y, operator.activation)  # type: ignore[attr-defined]
    is_depthwise = group > 1 and group == sizes["channels"] == sizes["filters"]
    if group > 1 and not is_depthwise:
        raise CompilerError("convolutions must have one group, or one for each channel", got=f"{group} groups")
    kind = "depthwise" if is_depthwise else "conv"
    array = weights[:, 0] if is_depthwise else weights
    if operand is None:
        return (NmpWork(NmpStage(kind, **sizes, window=window, shift=_shift(ratio), **limits), array, bias),)
    if is_depthwise:
        raise CompilerError("a depthwise convolution has no residual branch")
    return (NmpWork(NmpStage(kind, **sizes, window=window, wide=True), array, bias), _residual(node, ratio, limits))


def _residual(node: Node, ratio: float, limits: dict[str, Any]) -> NmpWork:
    """Return the sum of a convolution's accumulators and its residual branch."""
    x, w, z, y = _types(node.inputs[0], node.inputs[1], node.inputs[3], node.outputs[0])
    depth = math.prod(int(n) for n in w.shape[1:])
    bits = 31 if y.dtype.itemsize == 1 else bit_width(depth * max_magnitude(x) * max_magnitude(w) + 2**31)
    ratios = (ratio, _scale(z) / _scale(y))
    a_shift, b_shift, shift = _sum_shifts(ratios, (bits, bit_width(max_magnitude(z))))
    stage = NmpStage("add", **_sizes(y, y), shift=shift, **limits, a_shift=a_shift, b_shift=b_shift, wide=True)
    return NmpWork(stage, operand=node.inputs[3])


def _types(*values: Value | None) -> list[TensorType]:
    return [value.type for value in values if value is not None]


def _dense(node: Node) -> tuple[NmpWork, ...]:
    x, y = node.inputs[0].type, node.outputs[0].type  # type: ignore[union-attr]
    weights, bias = _constants(node)
    rows = math.prod(int(n) for n in x.shape[:-1])
    sizes: dict[str, Any] = {"channels": weights.shape[1], "height": rows, "width": 1}
    sizes |= {"filters": weights.shape[0], "out_height": rows, "out_width": 1, "element": y.dtype.itemsize}
    limits = _limits(y, node.operator.activation)  # type: ignore[attr-defined]
    return (NmpWork(NmpStage("dense", **sizes, shift=_shift(_product_shift(node)), **limits), weights, bias),)


def _max_pool(node: Node) -> tuple[NmpWork, ...]:
    operator, x, y = node.operator, node.inputs[0].type, node.outputs[0].type  # type: ignore[union-attr]
    if len(node.outputs) > 1 or x.rank != 4:
        raise CompilerError("max pooling must have two axes and one result", got=f"{x.rank - 2} axes")
    window = _window(operator, operator.kernel)  # type: ignore[attr-defined]
    return (NmpWork(NmpStage("max", **_sizes(x, y), window=window, **_limits(y))),)


def _average_pool(node: Node) -> tuple[NmpWork, ...]:
    operator, x, y = node.operator, node.inputs[0].type, node.outputs[0].type  # type: ignore[union-attr]
    if x.rank != 4:
        raise CompilerError("average pooling must have two axes", got=f"{x.rank - 2}")
    ones = np.ones((1, 1, *map(int, x.shape[2:])), np.int64)
    inner = 1 if operator.count_pads else 0  # type: ignore[attr-defined]
    counts = np.unique(operator.window.view(ones, 0, inner=inner).sum(axis=(4, 5)))  # type: ignore[attr-defined]
    if len(counts) > 1:
        raise CompilerError("all windows of an average must have as many elements", got=f"{counts.tolist()}")
    window = _window(operator, operator.kernel)  # type: ignore[attr-defined]
    return (_mean(x, y, window, int(counts[0]), int(np.prod(operator.kernel))),)  # type: ignore[attr-defined]


def _global_average_pool(node: Node) -> tuple[NmpWork, ...]:
    x, y = node.inputs[0].type, node.outputs[0].type  # type: ignore[union-attr]
    if x.rank != 4:
        raise CompilerError("average pooling must have two axes", got=f"{x.rank - 2}")
    _, height, width = _image(x)
    return (_mean(x, y, NmpWindow((height, width)), height * width, height * width),)


def _mean(x: TensorType, y: TensorType, window: NmpWindow, count: int, most: int) -> NmpWork:
    bits, widest = bit_width(most * max_magnitude(x)), 31 if y.dtype.itemsize == 1 else 52
    scale = np.array(_scale(x) / max(count, 1) / _scale(y))
    multipliers, shifts = fixed_points([scale], [bits], widest)
    multiplier, shift = int(multipliers[0]), int(shifts)
    while shift and not multiplier % 2:
        multiplier, shift = multiplier // 2, shift - 1
    return NmpWork(NmpStage("mean", **_sizes(x, y), window=window, shift=shift, **_limits(y), multiplier=multiplier))


def _add(node: Node) -> tuple[NmpWork, ...]:
    a, b, y = (value.type for value in (*node.inputs, node.outputs[0]) if value is not None)
    if not a.shape == b.shape == y.shape:
        raise CompilerError("the terms of a sum must have one shape", got=f"{list(a.shape)} and {list(b.shape)}")
    ratios, bits = [_scale(t) / _scale(y) for t in (a, b)], [bit_width(max_magnitude(t)) for t in (a, b)]
    a_shift, b_shift, shift = _sum_shifts(ratios, bits)
    limits = _limits(y, node.operator.activation)  # type: ignore[attr-defined]
    stage = NmpStage("add", **_sizes(a, y), shift=shift, **limits, a_shift=a_shift, b_shift=b_shift)
    return (NmpWork(stage, operand=node.inputs[1]),)


def _rescale(node: Node) -> tuple[NmpWork, ...]:
    x, y = node.inputs[0].type, node.outputs[0].type  # type: ignore[union-attr]
    limits = _limits(y, node.operator.activation)  # type: ignore[attr-defined]
    return (NmpWork(NmpStage("rescale", **_sizes(x, y), shift=_shift(_scale(x) / _scale(y)), **limits)),)


_RULES: dict[type, Callable[[Node], tuple[NmpWork, ...]]] = {
    QuantizedConv: _conv,
    QuantizedFullyConnected: _dense,
    MaxPool: _max_pool,
    QuantizedAveragePool: _average_pool,
    QuantizedGlobalAveragePool: _global_average_pool,
    QuantizedAdd: _add,
    Rescale: _rescale,
}
