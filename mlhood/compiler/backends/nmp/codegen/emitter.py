"""Instructions in program order, with the waits that they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby

from mlhood.compiler.backends.nmp.isa.instruction import Extent, Instruction, Units
from mlhood.compiler.backends.nmp.isa.transfers import Barrier, Load, Transfer, Wait
from mlhood.compiler.backends.nmp.machine import Machine


def products(pairs: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return pairs as few products of sets: those with the same first numbers for the same second ones."""
    by_first: dict[int, set[int]] = defaultdict(set)
    for first, second in pairs:
        by_first[first].add(second)
    by_seconds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for first, seconds in sorted(by_first.items()):
        by_seconds[tuple(sorted(seconds))].append(first)
    return [(tuple(firsts), seconds) for seconds, firsts in by_seconds.items()]


class Emitter:
    """A list of instructions that grows.

    Transfers are remembered for each tilelet until it has waited for them, so that an instruction that computes is
    preceded by a wait exactly where it uses memory of one that may not be complete.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.instructions: list[Instruction] = []
        self._in_flight: list[list[tuple[Extent, bool]]] = [[] for _ in range(machine.units)]

    def transfer(self, transfer: Transfer) -> None:
        """Append a load or a store."""
        is_load = isinstance(transfer, Load)
        extent = (transfer.writes() if is_load else transfer.reads())[0]
        for unit in transfer.units.numbers(self.machine.tilelets):
            self._in_flight[unit].append((extent, is_load))
        self.instructions.append(transfer)

    def compute(self, instruction: Instruction) -> None:
        """Append an instruction that computes, after the waits that it needs."""
        units: Units = instruction.units  # type: ignore[attr-defined]
        reads, writes = instruction.reads(), instruction.writes()
        waits: list[tuple[int, int]] = []
        for unit in units.numbers(self.machine.tilelets):
            flights = self._in_flight[unit]
            needed = _needed(flights, reads, writes) if flights else 0
            if needed:
                del flights[:needed]
                waits.append((len(flights), unit))
        for outstanding, group in groupby(sorted(waits), key=lambda pair: pair[0]):
            numbers = [unit for _, unit in group]
            if len(numbers) == len(units):
                self.instructions.append(Wait(units, outstanding))
                continue
            pairs = (divmod(number, self.machine.tilelets) for number in numbers)
            self.instructions += [Wait(Units(*product), outstanding) for product in products(pairs)]
        self.instructions.append(instruction)

    def barrier(self) -> None:
        """Append a barrier."""
        for flights in self._in_flight:
            flights.clear()
        self.instructions.append(Barrier())


def _needed(flights: list[tuple[Extent, bool]], reads: tuple[Extent, ...], writes: tuple[Extent, ...]) -> int:
    """Return how many of a tilelet's oldest transfers must be complete before an instruction."""
    for i in range(len(flights) - 1, -1, -1):
        extent, is_load = flights[i]
        end = extent.address + extent.bytes
        for other in (*reads, *writes) if is_load else writes:
            if extent.address < other.address + other.bytes and other.address < end:
                return i + 1
    return 0
