"""Instructions in program order, with the waits that they need, and the weights as they are loaded.

Weights are packed slice by slice, bias first, each from a new burst.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from mlhood.compiler.backends.nmp.codegen.slicing import ALIGNMENT, Slicing, parts
from mlhood.compiler.backends.nmp.isa.computations import Computation
from mlhood.compiler.backends.nmp.isa.instruction import (
    Barrier,
    NmpInstruction,
    Transfer,
    Units,
    Wait,
    ceil_div,
    latest_conflict,
)
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import NmpStage, NmpWork


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
        self.instructions: list[NmpInstruction] = []
        self._in_flight: list[list[Transfer]] = [[] for _ in range(machine.units)]

    def transfer(self, transfer: Transfer) -> None:
        """Append a load or a store."""
        for unit in transfer.units.numbers(self.machine.tilelets):
            self._in_flight[unit].append(transfer)
        self.instructions.append(transfer)

    def compute(self, instruction: Computation) -> None:
        """Append an instruction that computes, after the waits that it needs."""
        units, waits = instruction.units, list[tuple[int, int]]()
        for unit in units.numbers(self.machine.tilelets):
            flights = self._in_flight[unit]
            if flights and (conflict := latest_conflict(flights, instruction)) is not None:
                del flights[: conflict[0] + 1]
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


class PackedWeights:
    """The slices of a layer's weights, one after another in memory.

    Args:
        stages: The layer's stages.
        slicing: How it is cut.
        alignment: Of each slice, in bytes.

    Attributes:
        bytes: Of all slices.
        filters: First and end of each slice's filters.
        channels: First and end of each slice's input channels.
    """

    def __init__(self, stages: Sequence[NmpStage], slicing: Slicing, alignment: int) -> None:
        self.stages = tuple(stages)
        self.filters = parts(stages[-1].filters, slicing.filters)
        multiplies = stages[0].multiplies
        self.channels = parts(stages[0].channels, slicing.channels) if multiplies else [(0, stages[0].channels)]
        self._addresses: dict[tuple[int, int], int] = {}
        self.bytes = 0
        for j in range(len(self.filters)):
            for k in range(len(self.channels)):
                self._addresses[j, k] = self.bytes
                self.bytes += ceil_div(self.size(j, k), alignment) * alignment

    def address(self, j: int, k: int) -> int:
        """Return where the slice of filters j and channels k begins."""
        return self._addresses[j, k]

    def size(self, j: int, k: int) -> int:
        """Return the bytes of a slice."""
        return self.offsets(j, k)[-1]

    def offsets(self, j: int, k: int) -> list[int]:
        """Return where each stage's weights begin in a slice, and the slice's size.

        Those of the stages after the first are in the last slice of channels.
        """
        filters = self.filters[j][1] - self.filters[j][0]
        channels = self.channels[k][1] - self.channels[k][0]
        found, end = [], 0
        for n, stage in enumerate(self.stages):
            found.append(end)
            if not n or k == len(self.channels) - 1:
                size = stage.weight_bytes(filters, channels, first=not k)
                end = found[-1] + size
                if n < len(self.stages) - 1:
                    end = ceil_div(end, ALIGNMENT) * ALIGNMENT
        return [*found, end]

    def pack(self, works: Sequence[NmpWork]) -> np.ndarray:
        """Return the slices of these arrays: uint8 [bytes]."""
        memory = np.zeros(self.bytes, np.uint8)
        for (j, k), address in self._addresses.items():
            offsets = self.offsets(j, k)
            for n, work in enumerate(works):
                if work.weights is None or (n and k < len(self.channels) - 1):
                    continue
                data = self._slice(work, n, j, k)
                start = address + offsets[n]
                memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return memory

    def _slice(self, work: NmpWork, n: int, j: int, k: int) -> bytes:
        weights = np.asarray(work.weights)
        filters = slice(*self.filters[j])
        bias = b"" if k and not n else np.asarray(work.bias, np.int32)[filters].tobytes()
        if work.stage.multiplies:
            return bias + np.ascontiguousarray(weights[filters, slice(*self.channels[k])]).tobytes()
        return bias + np.ascontiguousarray(weights[filters]).tobytes()
