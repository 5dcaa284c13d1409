"""Instructions that compute: their operands, cycles and multiply-accumulates, and their results in NumPy.

Accumulators have 4 bytes for each byte of an element: sums of 8-bit products wrap around at 32 bits. Rescaling is
y = clip(round(total multiplier / 2^shift), low, high), ties rounded up; a negative shift multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.compiler.backends.nmp.isa.instruction import NmpInstruction, Operand, Units, ceil_div

LANES = ("filters", "pixels")  # what the multipliers of a tilelet share out among themselves
POOLS = ("max", "mean")
_FAR = 1 << 20  # beyond all elements: what is larger saturates, whatever the shift


@dataclass(frozen=True)
class Computation(NmpInstruction):
    """Base of what computes; all have an operand `element`, the bytes of an element."""

    units: Units

    def cycles(self, lanes: int) -> int:
        """Return the cycles on a tilelet with so many lanes for its elements."""
        raise NotImplementedError

    @property
    def macs(self) -> int:
        """Multiply-accumulates on each of its tilelets."""
        return 0

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        """Return what it writes, given what it reads by name; the first axis of each array is the tilelet."""
        raise NotImplementedError

    def rescaled(self, total: np.ndarray) -> np.ndarray:
        """Return sums, integers, rescaled by the instruction's operands `shift`, `low` and `high`."""
        scale: Any = self
        total = total.astype(np.int64)
        if scale.shift > 0:
            total = (total + (1 << (scale.shift - 1))) >> scale.shift
        elif scale.shift < 0:
            total = np.clip(total, -_FAR, _FAR) << min(-scale.shift, 40)
        return np.clip(total, scale.low, scale.high)


class _Product(Computation):
    """What sums products: x, and weights behind a bias of 4 bytes for each filter, or sums in the accumulators."""

    first: bool
    last: bool

    @cached_property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        """x, y, the weights without the bias, and the accumulators."""
        raise NotImplementedError

    def reads(self) -> dict[str, Operand]:
        x, _, weights, sums = self.operands
        start = Operand(weights.address - 4 * weights.shape[0], 4, weights.shape[:1]) if self.first else sums
        return {"x": x, "weights": weights, "start": start}

    def writes(self) -> tuple[Operand, ...]:
        _, y, _, sums = self.operands
        return (y if self.last else sums,)

    def finished(self, products: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return sums of products, exact in floating point, added to what they start from."""
        sums = (products.astype(np.int64) + start).astype(f"int{8 * self.operands[3].element}")
        return self.rescaled(sums) if self.last else sums


@dataclass(frozen=True)
class Windowed(Computation):
    """Base of what slides a window over x [channels, height, width]; y has out_height x out_width pixels.

    Output (i, j) reads rows i stride_height - pad_top + k dilation_height, and columns accordingly; what lies outside
    of x is padding.

    Args:
        units: The tilelets.
        x: Address of the input.
        y: Address of the output.
        element: Bytes of an element of x and y, 1 or 2.
        channels: Of the slice.
        height: Rows of x.
        width: Columns of x.
        kernel_height: Rows of the window.
        kernel_width: Columns of the window.
        stride_height: Rows from one window to the next.
        stride_width: Columns from one window to the next.
        dilation_height: Rows from one element of the window to the next.
        dilation_width: Columns from one element of the window to the next.
        pad_top: Rows of padding above x.
        pad_left: Columns of padding to the left of x.
        out_height: Rows of y.
        out_width: Columns of y.
        shift: Of the rescaling.
        low: Smallest result.
        high: Largest result.
    """

    x: int
    y: int
    element: int
    channels: int
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    stride_height: int
    stride_width: int
    dilation_height: int
    dilation_width: int
    pad_top: int
    pad_left: int
    out_height: int
    out_width: int
    shift: int
    low: int
    high: int

    @property
    def pixels(self) -> int:
        """Output pixels of each channel."""
        return self.out_height * self.out_width

    @property
    def taps(self) -> int:
        """Elements of the window in one channel."""
        return self.kernel_height * self.kernel_width

    @property
    def image(self) -> Operand:
        """The operand x."""
        return Operand(self.x, self.element, (self.channels, self.height, self.width))

    def result(self, channels: int) -> Operand:
        """Return the operand y."""
        return Operand(self.y, self.element, (channels, self.out_height, self.out_width))

    def windows(self, x: np.ndarray, fill: int) -> np.ndarray:
        """Return the windows of x: [tilelets, channels, out_height, out_width, kernel_height, kernel_width]."""
        spans = ((self.kernel_height - 1) * self.dilation_height + 1, (self.kernel_width - 1) * self.dilation_width + 1)
        rows, columns = (self.out_height - 1) * self.stride_height, (self.out_width - 1) * self.stride_width
        below, right = self.pad_top + self.height, self.pad_left + self.width
        size = max(rows + spans[0], below), max(columns + spans[1], right)
        padded = np.full((*x.shape[:2], *size), fill, x.dtype)
        padded[:, :, self.pad_top : below, self.pad_left : right] = x
        view = sliding_window_view(padded, spans, (2, 3))
        view = view[:, :, : rows + 1 : self.stride_height, : columns + 1 : self.stride_width]
        return view[..., :: self.dilation_height, :: self.dilation_width]


@dataclass(frozen=True)
class Convolve(Windowed, _Product):
    """y [filters, pixels] = x convolved with w [filters, channels, window], padded with 0.

    Args:
        w: Address of the weights: with `first`, a bias of 4 bytes for each filter, then [filters, channels, window].
        accumulators: Address of the sums [filters, pixels], 4 bytes each for elements of one byte, 8 for two. Read
            unless `first`; written unless `last`.
        filters: Number of filters.
        first: Sums start from the bias; else from the accumulators.
        last: Rescale the sums to y; else leave them in the accumulators, and y is not written.
        lanes: What the multipliers work on at a time, one of `LANES`: filters of one pixel, or pixels of one filter.
    """

    w: int
    accumulators: int
    filters: int
    first: bool
    last: bool
    lanes: str

    mnemonic = "conv"

    @cached_property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        window = (self.filters, self.channels, self.kernel_height, self.kernel_width)
        weights = Operand(self.w + 4 * self.filters * self.first, self.element, window)
        y = self.result(self.filters)
        return self.image, y, weights, Operand(self.accumulators, 4 * self.element, y.shape)

    def cycles(self, lanes: int) -> int:
        return self.channels * self.taps * lane_steps(self.lanes, self.filters, self.pixels, lanes)

    @property
    def macs(self) -> int:
        return self.filters * self.pixels * self.channels * self.taps

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        x, weights, start = arrays["x"], arrays["weights"], arrays["start"]
        columns = self.windows(x, 0).transpose(0, 1, 4, 5, 2, 3).reshape(len(x), -1, self.pixels)
        products = weights.reshape(len(x), self.filters, -1).astype(np.float64) @ columns.astype(np.float64)
        return self.finished(products, start.reshape(len(x), self.filters, -1))


@dataclass(frozen=True)
class Depthwise(Windowed, _Product):
    """y [channels, pixels]: each channel convolved with its own window, padded with 0.

    Args:
        w: Address of the weights: a bias of 4 bytes for each channel, then [channels, window].
        lanes: One of `LANES`; a filter is a channel.
    """

    w: int
    lanes: str

    mnemonic = "depthwise"
    first = last = True

    @cached_property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        window = (self.channels, self.kernel_height, self.kernel_width)
        y = self.result(self.channels)
        weights = Operand(self.w + 4 * self.channels, self.element, window)
        return self.image, y, weights, y._replace(element=4 * self.element)

    def cycles(self, lanes: int) -> int:
        return self.taps * lane_steps(self.lanes, self.channels, self.pixels, lanes)

    @property
    def macs(self) -> int:
        return self.channels * self.pixels * self.taps

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        windows, weights = self.windows(arrays["x"], 0), arrays["weights"][:, :, None, None]
        products = (windows.astype(np.int64) * weights).sum(axis=(4, 5))
        return self.finished(products, arrays["start"][:, :, None, None])


@dataclass(frozen=True)
class Dense(_Product):
    """y [rows, filters] = x [rows, depth] times w [filters, depth] transposed.

    Args:
        units: The tilelets.
        x: Address of the input.
        w: Address of the weights: with `first`, a bias of 4 bytes for each filter, then [filters, depth].
        y: Address of the output.
        accumulators: As in `Convolve`, for [rows, filters].
        element: Bytes of an element, 1 or 2.
        rows: Rows of x.
        depth: Terms of each sum.
        filters: Columns of y; the multipliers work on filters of one row at a time.
        first: As in `Convolve`.
        last: As in `Convolve`.
        shift: Of the rescaling.
        low: Smallest result.
        high: Largest result.
    """

    x: int
    w: int
    y: int
    accumulators: int
    element: int
    rows: int
    depth: int
    filters: int
    first: bool
    last: bool
    shift: int
    low: int
    high: int

    mnemonic = "dense"

    @cached_property
    def operands(self) -> tuple[Operand, Operand, Operand, Operand]:
        weights = Operand(self.w + 4 * self.filters * self.first, self.element, (self.filters, self.depth))
        y = Operand(self.y, self.element, (self.rows, self.filters))
        x = Operand(self.x, self.element, (self.rows, self.depth))
        return x, y, weights, Operand(self.accumulators, 4 * self.element, y.shape)

    def cycles(self, lanes: int) -> int:
        return self.rows * self.depth * ceil_div(self.filters, lanes)

    @property
    def macs(self) -> int:
        return self.rows * self.depth * self.filters

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        x, weights, start = arrays["x"], arrays["weights"], arrays["start"]
        products = x.astype(np.float64) @ weights.swapaxes(1, 2).astype(np.float64)
        return self.finished(products, start.reshape(len(x), -1, self.filters))


@dataclass(frozen=True)
class Pool(Windowed):
    """y [channels, pixels]: the maximum or the rescaled sum of each window; padding does not count.

    Args:
        kind: One of `POOLS`. The maximum is not rescaled.
        multiplier: Of the rescaling of sums, 1 for a shift alone; less than 2^52.
    """

    kind: str
    multiplier: int

    mnemonic = "pool"

    def reads(self) -> dict[str, Operand]:
        return {"x": self.image}

    def writes(self) -> tuple[Operand, ...]:
        return (self.result(self.channels),)

    def cycles(self, lanes: int) -> int:
        return self.taps * ceil_div(self.channels * self.pixels, lanes)

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        x = arrays["x"]
        if self.kind == "max":
            return self.windows(x, np.iinfo(x.dtype).min).max(axis=(4, 5))
        return self.rescaled(self.windows(x, 0).sum(axis=(4, 5), dtype=np.int64) * self.multiplier)


@dataclass(frozen=True)
class Add(Computation):
    """y = rescaled(a 2^a_shift + b 2^b_shift): sums of `count` elements, with one rounding.

    Args:
        units: The tilelets.
        a: Address of a.
        b: Address of b.
        y: Address of y.
        element: Bytes of an element of y, 1 or 2.
        a_bytes: Bytes of an element of a: as y's, or those of accumulators, 4 element.
        b_bytes: Bytes of an element of b.
        count: Number of elements.
        a_shift: Bits by which a is shifted left, 0 or more.
        b_shift: Bits by which b is shifted left, 0 or more.
        shift: Of the rescaling.
        low: Smallest result.
        high: Largest result.
    """

    a: int
    b: int
    y: int
    element: int
    a_bytes: int
    b_bytes: int
    count: int
    a_shift: int
    b_shift: int
    shift: int
    low: int
    high: int

    mnemonic = "add"

    def reads(self) -> dict[str, Operand]:
        return {"a": Operand(self.a, self.a_bytes, (self.count,)), "b": Operand(self.b, self.b_bytes, (self.count,))}

    def writes(self) -> tuple[Operand, ...]:
        return (Operand(self.y, self.element, (self.count,)),)

    def cycles(self, lanes: int) -> int:
        return ceil_div(self.count, lanes)

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        a, b = (arrays[name].astype(np.int64) for name in "ab")
        return self.rescaled((a << self.a_shift) + (b << self.b_shift))


@dataclass(frozen=True)
class Rescale(Computation):
    """y = rescaled(x): other parameters, or an activation, whose limits are `low` and `high`.

    Args:
        units: The tilelets.
        x: Address of x.
        y: Address of y.
        element: Bytes of an element of x and y, 1 or 2.
        count: Number of elements.
        shift: Of the rescaling.
        low: Smallest result.
        high: Largest result.
    """

    x: int
    y: int
    element: int
    count: int
    shift: int
    low: int
    high: int

    mnemonic = "rescale"

    def reads(self) -> dict[str, Operand]:
        return {"x": Operand(self.x, self.element, (self.count,))}

    def writes(self) -> tuple[Operand, ...]:
        return (Operand(self.y, self.element, (self.count,)),)

    def cycles(self, lanes: int) -> int:
        return ceil_div(self.count, lanes)

    def compute(self, **arrays: np.ndarray) -> np.ndarray:
        return self.rescaled(arrays["x"])


def lane_steps(lanes: str, filters: int, pixels: int, count: int) -> int:
    """Return the steps in which `count` lanes compute one product for each filter and pixel.

    Lanes that have no filter, or no pixel, left are idle in the last step.
    """
    if lanes == "filters":
        return pixels * ceil_div(filters, count)
    return filters * ceil_div(pixels, count)
