"""What is sliced: a convolution and the register tile that computes it, and how many tiles there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from mlhood.errors import SlicingError

Order = Literal["IS", "WS"]
ORDERS: tuple[Order, ...] = get_args(Order)
NUMBER = 4  # bytes of a float32
_MOST = 2**50  # multiply-adds of whole tiles: bytes and cycles of more would not fit into 64 bits


@dataclass(frozen=True)
class Problem:
    """A convolution in float32, for one image.

    An input tile holds the numbers under `window` windows, a weight tile `filter_tile` filters, an output tile
    `window` x `filter_tile` sums: what one call of the microkernel reads and writes.

    Args:
        filters: F.
        channels: C.
        kernel: KH and KW.
        output: OH and OW.
        window: Output windows of a register tile (Nwin).
        filter_tile: Filters of a register tile (Nf).
        rows: How many rows the windows fall into, for kernels whose tiles do not reach from one row of the output
            into the next; None if tiles do.
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
            raise SlicingError("a convolution's sizes begin at 1", expected="positive sizes", got=asdict(self))
        tiles = self.input_tiles * self.window * self.weight_tiles * self.filter_tile
        if tiles * self.channels * self.kernel[0] * self.kernel[1] > _MOST:
            raise SlicingError(
                "this convolution is too large to be counted", expected=f"at most {_MOST:,} multiply-adds",
                got=asdict(self),
            )  # fmt: skip

    @property
    def windows(self) -> int:
        """Windows of the convolution: OH * OW."""
        return self.output[0] * self.output[1]

    @property
    def input_tiles(self) -> int:
        """How many input tiles there are for one slice of channels, those that are not full among them."""
        rows = self.rows or 1
        return rows * -(-(self.windows // rows) // self.window)

    @property
    def weight_tiles(self) -> int:
        """How many weight tiles there are for one slice of channels, likewise."""
        return -(-self.filters // self.filter_tile)

    @property
    def macs(self) -> int:
        """Multiply-adds of the convolution."""
        return self.windows * self.filters * self.channels * self.kernel[0] * self.kernel[1]

    @property
    def input_bytes(self) -> int:
        """Bytes of one channel of an input tile, a number for each window that covers it: Nwin * KH * KW * 4."""
        return self.window * self.kernel[0] * self.kernel[1] * NUMBER

    @property
    def weight_bytes(self) -> int:
        """Bytes of one channel of a weight tile: Nf * KH * KW * 4."""
        return self.filter_tile * self.kernel[0] * self.kernel[1] * NUMBER

    @property
    def output_bytes(self) -> int:
        """Bytes of an output tile."""
        return self.window * self.filter_tile * NUMBER

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "kernel": list(self.kernel), "output": list(self.output),
                "input_tiles": self.input_tiles, "weight_tiles": self.weight_tiles}  # fmt: skip


@dataclass(frozen=True)
class Slicing:
    """How a convolution is sliced.

    Args:
        order: `IS`: an input tile stays in L1 while weight tiles pass by; `WS`: a weight tile stays.
        k1: Channels of a tile (SConv's Nc).
        k2: Tiles of the passing kind that stay in L2 meanwhile.
        k3: Tiles of the staying kind that L3 holds for the next group of k2.
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
    """Return how many tiles there are of the kind that passes by (k2's) and of the kind that stays (k3's)."""
    if order == "IS":
        return problem.weight_tiles, problem.input_tiles
    return problem.input_tiles, problem.weight_tiles


def channel_bytes(problem: Problem, order: Order) -> tuple[int, int]:
    """Return the bytes that one channel of a tile takes, of the passing and of the staying kind."""
    if order == "IS":
        return problem.weight_bytes, problem.input_bytes
    return problem.input_bytes, problem.weight_bytes


def possible(problem: Problem, order: Order, tiles: Sequence[int]) -> Slicing:
    """Return the slicing with these tiles, where they are more than there are with all there are; it need not fit."""
    most = (problem.channels, *counts(problem, order))
    k1, k2, k3 = (min(max(1, int(size)), limit) for size, limit in zip(tiles, most, strict=True))
    return Slicing(order, k1, k2, k3)
