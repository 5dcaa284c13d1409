"""The slicing problem: a convolution and the register tile that computes it; and its solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from mlhood.errors import SlicingError

Order = Literal["IS", "WS"]
ORDERS: tuple[Order, ...] = get_args(Order)
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Problem:
    """A convolution in float32, for one image.

    An input tile holds the elements under `window` windows, a weight tile `filter_tile` filters, an output tile
    `window` x `filter_tile` sums: what one call of the microkernel reads and writes.

    Args:
        filters: F.
        channels: C.
        kernel: KH and KW.
        output: OH and OW.
        window: Output windows of a register tile (Nwin).
        filter_tile: Filters of a register tile (Nf).
        rows: Number of rows that the windows are split into, for kernels whose tiles do not extend from one row of the
            output into the next; None if they do.
    """

    filters: int
    channels: int
    kernel: tuple[int, int]
    output: tuple[int, int]
    window: int
    filter_tile: int
    rows: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.filters, self.channels, *self.kernel, *self.output, self.window, self.filter_tile)
        if min(sizes) < 1:
            raise SlicingError("invalid size of a convolution", expected="positive sizes", got=asdict(self))

    @property
    def windows(self) -> int:
        """Windows of the convolution: OH * OW."""
        return self.output[0] * self.output[1]

    @property
    def input_tiles(self) -> int:
        """Number of input tiles in a slice of channels, partial ones included."""
        rows = self.rows or 1
        return rows * -(-(self.windows // rows) // self.window)

    @property
    def weight_tiles(self) -> int:
        """Number of weight tiles in a slice of channels, partial ones included."""
        return -(-self.filters // self.filter_tile)

    @property
    def macs(self) -> int:
        """Multiply-adds of the convolution."""
        return self.windows * self.filters * self.channels * self.kernel[0] * self.kernel[1]

    @property
    def input_bytes(self) -> int:
        """Bytes of one channel of an input tile, each element once per window that covers it: Nwin * KH * KW * 4."""
        return self.window * self.kernel[0] * self.kernel[1] * FLOAT_BYTES

    @property
    def weight_bytes(self) -> int:
        """Bytes of one channel of a weight tile: Nf * KH * KW * 4."""
        return self.filter_tile * self.kernel[0] * self.kernel[1] * FLOAT_BYTES

    @property
    def output_bytes(self) -> int:
        """Bytes of an output tile."""
        return self.window * self.filter_tile * FLOAT_BYTES


@dataclass(frozen=True)
class Slicing:
    """How a convolution is sliced.

    Args:
        order: `IS`: an input tile is stationary in L1 while weight tiles are streamed; `WS`: the reverse.
        k1: Channels of a tile (SConv's Nc).
        k2: Streamed tiles of a group, which L2 holds.
        k3: Stationary tiles of a group, which L3 holds for the next group of k2.
    """

    order: Order
    k1: int
    k2: int
    k3: int

    @property
    def tiles(self) -> tuple[int, int, int]:
        """(k1, k2, k3)."""
        return self.k1, self.k2, self.k3

    def __str__(self) -> str:
        return f"{self.order} {self.tiles}"


def counts(problem: Problem, order: Order) -> tuple[int, int]:
    """Return the number of streamed tiles (k2's kind) and of stationary tiles (k3's kind)."""
    if order == "IS":
        return problem.weight_tiles, problem.input_tiles
    return problem.input_tiles, problem.weight_tiles


def channel_bytes(problem: Problem, order: Order) -> tuple[int, int]:
    """Return the bytes of one channel of a streamed and of a stationary tile."""
    if order == "IS":
        return problem.weight_bytes, problem.input_bytes
    return problem.input_bytes, problem.weight_bytes


def possible(problem: Problem, order: Order, tiles: Sequence[int]) -> Slicing:
    """Return the slicing with these sizes clamped to the number of channels and tiles; it need not fit the caches."""
    limits = (problem.channels, *counts(problem, order))
    k1, k2, k3 = (min(max(1, int(size)), limit) for size, limit in zip(tiles, limits, strict=True))
    return Slicing(order, k1, k2, k3)
