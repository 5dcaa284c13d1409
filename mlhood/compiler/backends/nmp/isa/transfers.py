"""Instructions that move bytes between DRAM and tilelets, and those that wait for them."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.compiler.backends.nmp.isa.instruction import Extent, Instruction, Units, ceil_div


@dataclass(frozen=True)
class Transfer(Instruction):
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
    def bytes(self) -> int:
        """Bytes that are used, without the rest of the bursts."""
        return self.run * self.columns * self.rows

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
    opcode = 1

    def writes(self) -> tuple[Extent, ...]:
        return (Extent(self.memory, self.bytes),)


@dataclass(frozen=True)
class Store(Transfer):
    """Start a transfer from a tilelet's memory to DRAM."""

    mnemonic = "store"
    opcode = 2

    def reads(self) -> tuple[Extent, ...]:
        return (Extent(self.memory, self.bytes),)


@dataclass(frozen=True)
class Wait(Instruction):
    """Each of the tilelets waits until at most `outstanding` of its own transfers, the latest, are not complete."""

    units: Units
    outstanding: int = 0

    mnemonic = "wait"
    opcode = 10


@dataclass(frozen=True)
class Barrier(Instruction):
    """All tilelets wait until each of them is here and all transfers are complete."""

    mnemonic = "barrier"
    opcode = 11
