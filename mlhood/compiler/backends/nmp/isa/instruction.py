"""The instruction set: what each instruction reads and writes; those that compute are in `computations`.

A program is one list of instructions. Each names the tilelets that execute it, which all do the same on their own
memory: addresses are bytes of a tilelet's memory, blob by blob; an operand must not cross a blob's end. Tensors in
blobs are dense: [channels, rows, columns], elements of 1 or 2 bytes, accumulators of 4 or 8, all little-endian.

Time. A tilelet executes its instructions in program order. `Load` and `Store` only start a transfer: the one DMA engine
of the machine serves all transfers in program order while tilelets compute, and a tilelet learns by `Wait` that its own
are complete. Until then the tilelet must not read what a transfer writes, nor write what it reads or writes. What one
tilelet stores, others may load only after a `Barrier`, at which all tilelets and the DMA engine meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from mlhood.errors import CompilerError


def ceil_div(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class Units:
    """Tilelets: each of some tiles x each of some positions in a tile.

    Args:
        tiles: Numbers of tiles, ascending.
        tilelets: Positions in each of them, ascending.
    """

    tiles: tuple[int, ...]
    tilelets: tuple[int, ...]

    def __post_init__(self) -> None:
        for numbers in (self.tiles, self.tilelets):
            if not numbers or list(numbers) != sorted(set(numbers)) or numbers[0] < 0:
                raise CompilerError("invalid tilelets", expected="ascending numbers, 0 or more", got=str(self))

    def __len__(self) -> int:
        return len(self.tiles) * len(self.tilelets)

    def numbers(self, tilelets_per_tile: int) -> list[int]:
        """Return the tilelets' numbers in the machine: tile * tilelets_per_tile + position."""
        return [tile * tilelets_per_tile + tilelet for tile in self.tiles for tilelet in self.tilelets]

    def __str__(self) -> str:
        return f"t{_ranges(self.tiles)}.{_ranges(self.tilelets)}"


def _ranges(numbers: tuple[int, ...]) -> str:
    """Return numbers as text, such as 0-3,7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in parts)


class Operand(NamedTuple):
    """A dense array in a tilelet's memory.

    Args:
        address: Of its first byte.
        element: Bytes of an element, a signed integer.
        shape: Length of each axis.
    """

    address: int
    element: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.element * math.prod(self.shape)

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.address + self.element * math.prod(self.shape)


@dataclass(frozen=True)
class NmpInstruction:
    """Base of all instructions; `mnemonic` is its name."""

    mnemonic: ClassVar[str]

    def reads(self) -> dict[str, Operand]:
        """Return what it reads of the memory of each of its tilelets, by name."""
        return {}

    def writes(self) -> tuple[Operand, ...]:
        """Return what it writes of the memory of each of its tilelets."""
        return ()

    @cached_property
    def spans(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """First and end of each operand that it writes, and of each that it uses."""
        writes = [(operand.address, operand.end) for operand in self.writes()]
        return writes, [*((operand.address, operand.end) for operand in self.reads().values()), *writes]


@dataclass(frozen=True)
class Transfer(NmpInstruction):
    """Base of `Load` and `Store`: rows x columns runs of bytes in DRAM, dense in the tilelet's memory.

    Run (i, j) starts at dram + i row_stride + j column_stride.

    Args:
        units: The tilelets; `Load` delivers the same bytes to all of them, `Store` has one.
        memory: First address in the tilelet's memory.
        dram: First address in DRAM.
        run: Bytes of a run.
        columns: Runs in a row.
        column_stride: Bytes from a run to the next in a row.
        rows: Rows.
        row_stride: Bytes from a row to the next.
    """

    units: Units
    memory: int
    dram: int
    run: int
    columns: int = 1
    column_stride: int = 0
    rows: int = 1
    row_stride: int = 0

    @property
    def operand(self) -> Operand:
        """The tilelet's memory."""
        return Operand(self.memory, 1, (self.rows, self.columns, self.run))

    def bursts(self, burst_bytes: int) -> int:
        """Return how many aligned bursts the runs touch; runs do not share one."""
        if self.column_stride % burst_bytes == 0 and self.row_stride % burst_bytes == 0:
            first = self.dram % burst_bytes
            return self.rows * self.columns * ceil_div(first + self.run, burst_bytes)
        total = 0
        for i in range(self.rows):
            for j in range(self.columns):
                first = (self.dram + i * self.row_stride + j * self.column_stride) % burst_bytes
                total += ceil_div(first + self.run, burst_bytes)
        return total


@dataclass(frozen=True)
class Load(Transfer):
    """Start a transfer from DRAM to the memory of each of the tilelets."""

    mnemonic = "load"

    def writes(self) -> tuple[Operand, ...]:
        return (self.operand,)


@dataclass(frozen=True)
class Store(Transfer):
    """Start a transfer from a tilelet's memory to DRAM."""

    mnemonic = "store"

    def reads(self) -> dict[str, Operand]:
        return {"memory": self.operand}


@dataclass(frozen=True)
class Wait(NmpInstruction):
    """Each of the tilelets waits until at most `outstanding` of its own transfers, the latest, are not complete."""

    units: Units
    outstanding: int = 0

    mnemonic = "wait"


@dataclass(frozen=True)
class Barrier(NmpInstruction):
    """All tilelets wait until each of them is here and all transfers are complete."""

    mnemonic = "barrier"


def latest_conflict(transfers: Sequence[Transfer], instruction: NmpInstruction) -> tuple[int, int] | None:
    """Return which transfer, the latest, must be complete before an instruction, and an address that both use.

    Args:
        transfers: Those of a tilelet that may not be complete, the oldest first.
        instruction: What computes: it must not use what a load writes, nor write what a store reads.
    """
    writes, used = instruction.spans
    for i in range(len(transfers) - 1, -1, -1):
        ((start, stop),) = transfers[i].spans[1]
        for first, end in used if isinstance(transfers[i], Load) else writes:
            if start < end and first < stop:
                return i, max(start, first)
    return None
