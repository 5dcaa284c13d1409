"""Instructions that slide a window over a slice: convolutions and pooling."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.compiler.backends.nmp.isa.instruction import Extent, NmpInstruction, Units, ceil_div

LANES = ("filters", "pixels")  # what the multipliers of a tilelet share out among themselves
POOLS = ("max", "mean")


@dataclass(frozen=True)
class Windowed(NmpInstruction):
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

    units: Units
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
    def input_bytes(self) -> int:
        """Bytes of x."""
        return self.channels * self.height * self.width * self.element


@dataclass(frozen=True)
class Convolve(Windowed):
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
    opcode = 3

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of all sums."""
        return 4 * self.element * self.filters * self.pixels

    @property
    def weight_bytes(self) -> int:
        """Bytes of the bias and the weights."""
        return self.filters * (4 * self.first + self.channels * self.taps * self.element)

    def reads(self) -> tuple[Extent, ...]:
        sums = () if self.first else (Extent(self.accumulators, self.accumulator_bytes),)
        return (Extent(self.x, self.input_bytes), Extent(self.w, self.weight_bytes), *sums)

    def writes(self) -> tuple[Extent, ...]:
        if not self.last:
            return (Extent(self.accumulators, self.accumulator_bytes),)
        return (Extent(self.y, self.element * self.filters * self.pixels),)

    def cycles(self, lanes: int) -> int:
        return self.channels * self.taps * lane_steps(self.lanes, self.filters, self.pixels, lanes)

    @property
    def macs(self) -> int:
        return self.filters * self.pixels * self.channels * self.taps


@dataclass(frozen=True)
class Depthwise(Windowed):
    """y [channels, pixels]: each channel convolved with its own window, padded with 0.

    Args:
        w: Address of the weights: a bias of 4 bytes for each channel, then [channels, window].
        lanes: One of `LANES`; a filter is a channel.
    """

    w: int
    lanes: str

    mnemonic = "depthwise"
    opcode = 4

    @property
    def weight_bytes(self) -> int:
        """Bytes of the bias and the weights."""
        return self.channels * (4 + self.taps * self.element)

    def reads(self) -> tuple[Extent, ...]:
        return (Extent(self.x, self.input_bytes), Extent(self.w, self.weight_bytes))

    def writes(self) -> tuple[Extent, ...]:
        return (Extent(self.y, self.element * self.channels * self.pixels),)

    def cycles(self, lanes: int) -> int:
        return self.taps * lane_steps(self.lanes, self.channels, self.pixels, lanes)

    @property
    def macs(self) -> int:
        return self.channels * self.pixels * self.taps


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
    opcode = 6

    def reads(self) -> tuple[Extent, ...]:
        return (Extent(self.x, self.input_bytes),)

    def writes(self) -> tuple[Extent, ...]:
        return (Extent(self.y, self.element * self.channels * self.pixels),)

    def cycles(self, lanes: int) -> int:
        return self.taps * ceil_div(self.channels * self.pixels, lanes)


def lane_steps(lanes: str, filters: int, pixels: int, count: int) -> int:
    """Return the steps in which `count` lanes compute one product for each filter and pixel.

    Lanes that have no filter, or no pixel, left are idle in the last step.
    """
    if lanes == "filters":
        return pixels * ceil_div(filters, count)
    return filters * ceil_div(pixels, count)
