"""Instructions on rows of elements: dense layers, sums, rescaling and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlhood.compiler.backends.nmp.isa.instruction import Extent, NmpInstruction, Units, ceil_div


@dataclass(frozen=True)
class Dense(NmpInstruction):
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

    units: Units
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
    opcode = 5

    @property
    def accumulator_bytes(self) -> int:
        """Bytes of all sums."""
        return 4 * self.element * self.rows * self.filters

    @property
    def weight_bytes(self) -> int:
        """Bytes of the bias and the weights."""
        return self.filters * (4 * self.first + self.depth * self.element)

    def reads(self) -> tuple[Extent, ...]:
        sums = () if self.first else (Extent(self.accumulators, self.accumulator_bytes),)
        x = Extent(self.x, self.rows * self.depth * self.element)
        return (x, Extent(self.w, self.weight_bytes), *sums)

    def writes(self) -> tuple[Extent, ...]:
        if not self.last:
            return (Extent(self.accumulators, self.accumulator_bytes),)
        return (Extent(self.y, self.element * self.rows * self.filters),)

    def cycles(self, lanes: int) -> int:
        return self.rows * self.depth * ceil_div(self.filters, lanes)

    @property
    def macs(self) -> int:
        return self.rows * self.depth * self.filters


@dataclass(frozen=True)
class Add(NmpInstruction):
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

    units: Units
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
    opcode = 7

    def reads(self) -> tuple[Extent, ...]:
        return (Extent(self.a, self.count * self.a_bytes), Extent(self.b, self.count * self.b_bytes))

    def writes(self) -> tuple[Extent, ...]:
        return (Extent(self.y, self.count * self.element),)

    def cycles(self, lanes: int) -> int:
        return ceil_div(self.count, lanes)


@dataclass(frozen=True)
class Rescale(NmpInstruction):
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

    units: Units
    x: int
    y: int
    element: int
    count: int
    shift: int
    low: int
    high: int

    mnemonic = "rescale"
    opcode = 8

    def reads(self) -> tuple[Extent, ...]:
        return (Extent(self.x, self.count * self.element),)

    def writes(self) -> tuple[Extent, ...]:
        return (Extent(self.y, self.count * self.element),)

    def cycles(self, lanes: int) -> int:
        return ceil_div(self.count, lanes)


@dataclass(frozen=True)
class Table(NmpInstruction):
    """y = table[x + 128] for elements of one byte.

    Args:
        units: The tilelets.
        x: Address of x.
        table: Address of 256 elements.
        y: Address of y.
        count: Number of elements.
    """

    units: Units
    x: int
    table: int
    y: int
    count: int

    mnemonic = "table"
    opcode = 9
    element: ClassVar[int] = 1

    def reads(self) -> tuple[Extent, ...]:
        return (Extent(self.x, self.count), Extent(self.table, 256))

    def writes(self) -> tuple[Extent, ...]:
        return (Extent(self.y, self.count),)

    def cycles(self, lanes: int) -> int:
        return ceil_div(self.count, lanes)
