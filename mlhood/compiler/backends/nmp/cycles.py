"""The cycle model: when each instruction of a program runs on which tilelet, and what that costs.

1. A tilelet spends `issue_cycles` on each of its instructions, and then, if it computes, `Computation.cycles`.
2. A transfer is ready when the last of its tilelets has issued it. The DMA engine serves transfers in program order: it
   is busy for `burst_cycles` for each burst, and `latency_cycles` later the transfer is complete.
3. `Wait(n)` lasts until all but the last n transfers of the tilelet are complete.
4. `Barrier` lasts until all tilelets have issued it and all transfers are complete, and `barrier_cycles` more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from mlhood.compiler.backends.nmp.isa.computations import Computation
from mlhood.compiler.backends.nmp.isa.instruction import Barrier, Load, NmpInstruction, Store, Units, Wait
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.program import NmpProgram

if TYPE_CHECKING:
    import pandas as pd

# Kinds of instructions, for the compiled pass.
LOAD, STORE, COMPUTE, WAIT, BARRIER = range(5)
_KINDS: dict[type[NmpInstruction], int] = {Load: LOAD, Store: STORE, Wait: WAIT, Barrier: BARRIER}
# Columns of what is counted for each instruction.
_COUNTS = ("macs", "lane_cycles", "compute_cycles", "dma_cycles", "bytes", "burst_bytes", "blob_bytes", "wide_macs")


@dataclass(frozen=True)
class LayerTiming:
    """What a layer costs.

    Args:
        name: Of the layer.
        slicing: How it is sliced.
        cycles: From its start to the end of its barrier.
        macs: Multiply-accumulates.
        lane_cycles: Multipliers x cycles in which a tilelet executes an instruction that multiplies.
        compute_cycles: Cycles of computation, summed over the tilelets.
        dma_cycles: Cycles in which the DMA engine is busy.
        bytes: Transferred and used.
        burst_bytes: Transferred, with what is not used of bursts.
        energy: Picojoules by cause: mac, idle, blob, dram.
        units: Tilelets of the machine.
        peak: Multiply-accumulates of the machine per cycle, for the layer's elements.
    """

    name: str
    slicing: str
    cycles: int
    macs: int
    lane_cycles: int
    compute_cycles: int
    dma_cycles: int
    bytes: int
    burst_bytes: int
    energy: dict[str, float] = field(repr=False)
    units: int
    peak: int

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates over what the machine could do in these cycles."""
        return self.macs / (self.cycles * self.peak) if self.cycles else 0.0

    @property
    def idle(self) -> float:
        """Share of the multipliers without work while their tilelet multiplies."""
        return 1 - self.macs / self.lane_cycles if self.lane_cycles else 0.0

    @property
    def bound(self) -> str:
        """What takes longer: "memory" (the DMA engine), or "compute" (the mean tilelet)."""
        return "memory" if self.dma_cycles * self.units >= self.compute_cycles else "compute"


@dataclass(frozen=True)
class Timing:
    """When a program's instructions run, in cycles.

    Args:
        program: The program.
        cycles: Until the last instruction is complete.
        layers: A row for each layer.
        starts: Of each instruction on each of its tilelets, int64; see `offsets`.
        ends: When each of these ends, int64; of a transfer, the end of its issue.
        offsets: Instruction i has entries offsets[i] to offsets[i + 1], one for each of its tilelets in order.
        dma_starts: When the DMA engine starts the transfer, int64 for each instruction; -1 for others.
        dma_ends: When it is free again.
    """

    program: NmpProgram = field(repr=False)
    cycles: int
    layers: tuple[LayerTiming, ...]
    starts: np.ndarray = field(repr=False)
    ends: np.ndarray = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    dma_starts: np.ndarray = field(repr=False)
    dma_ends: np.ndarray = field(repr=False)

    @property
    def seconds(self) -> float:
        """Time at the machine's clock."""
        return self.cycles / self.program.machine.clock_hz

    @property
    def bytes(self) -> int:
        """Bytes transferred and used."""
        return sum(layer.bytes for layer in self.layers)

    @cached_property
    def energy(self) -> dict[str, float]:
        """Picojoules by cause."""
        causes = self.layers[0].energy if self.layers else {}
        return {cause: sum(layer.energy[cause] for layer in self.layers) for cause in causes}

    def table(self) -> pd.DataFrame:
        """Return a row per layer: cycles, multiply-accumulates, utilisation, bytes, energy (uJ), and what bounds it."""
        import pandas as pd

        rows = [
            {
                "cycles": layer.cycles,
                "macs": layer.macs,
                "utilisation": layer.utilisation,
                "idle": layer.idle,
                "DMA busy": layer.dma_cycles / layer.cycles if layer.cycles else 0.0,
                "bytes": layer.bytes,
                "burst bytes": layer.burst_bytes,
                "uJ": sum(layer.energy.values()) / 1e6,
                "bound": layer.bound,
                "slicing": layer.slicing,
            }
            for layer in self.layers
        ]
        return pd.DataFrame(rows, index=pd.Index([layer.name for layer in self.layers], name="layer"))


def time_program(program: NmpProgram) -> Timing:
    """Return when each instruction of a program runs."""
    machine, instructions = program.machine, program.instructions
    kinds = np.array([_KINDS.get(type(each), COMPUTE) for each in instructions], np.int64)
    units, offsets = _flat_units(instructions, machine)
    counts = np.array([_counts(each, machine) for each in instructions], np.int64).reshape(-1, len(_COUNTS))
    lengths = np.maximum(np.diff(offsets), 1)
    durations = counts[:, _COUNTS.index("dma_cycles")] + counts[:, _COUNTS.index("compute_cycles")] // lengths
    outstanding = np.array([each.outstanding if isinstance(each, Wait) else 0 for each in instructions], np.int64)
    costs = (machine.issue_cycles, machine.dram.latency_cycles, machine.barrier_cycles)
    starts, ends, dma_starts, dma_ends, marks = _schedule(
        kinds, units, offsets, durations, outstanding, costs, machine.units
    )
    layers, before = [], 0
    for layer in program.layers:
        end = int(marks[layer.end - 1]) if layer.end > layer.first else before
        total = counts[layer.first : layer.end].sum(axis=0)
        layers.append(_layer_timing(layer.name, layer.slicing, end - before, total, machine))
        before = end
    cycles = int(marks[-1]) if len(marks) else 0
    return Timing(program, cycles, tuple(layers), starts, ends, offsets, dma_starts, dma_ends)


def _flat_units(instructions: Sequence[NmpInstruction], machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """Return the tilelets of all instructions, one after another, and where those of each begin."""
    everyone = np.arange(machine.units)
    numbers: dict[Units | None, np.ndarray] = {None: everyone}
    parts = []
    for instruction in instructions:
        units = getattr(instruction, "units", None)
        if units is not None and units not in numbers:
            numbers[units] = np.array(units.numbers(machine.tilelets), np.int64)
        parts.append(numbers[units])
    lengths = np.array([0, *map(len, parts)], np.int64)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64), np.cumsum(lengths)


def _counts(instruction: NmpInstruction, machine: Machine) -> tuple[int, ...]:
    """Return what an instruction adds to the columns `_COUNTS`."""
    touched = sum(end - first for first, end in instruction.spans[1])
    if isinstance(instruction, Load | Store):
        bursts = instruction.bursts(machine.dram.burst_bytes)
        dma, moved = bursts * machine.dram.burst_cycles, bursts * machine.dram.burst_bytes
        return (0, 0, 0, dma, touched, moved, touched * len(instruction.units), 0)
    if not isinstance(instruction, Computation):
        return (0,) * len(_COUNTS)
    element: int = instruction.element  # type: ignore[attr-defined]
    units, lanes = len(instruction.units), machine.lanes(element)
    cycles, macs = instruction.cycles(lanes) * units, instruction.macs * units
    return (macs, cycles * lanes if macs else 0, cycles, 0, 0, 0, touched * units, macs if element == 2 else 0)


def _layer_timing(name: str, slicing: str, cycles: int, total: np.ndarray, machine: Machine) -> LayerTiming:
    macs, lane_cycles, compute, dma, used, bursts, blob, wide = (int(n) for n in total)
    prices = machine.energy
    energy = {
        "mac": (macs - wide) * prices.mac_8 + wide * prices.mac_16,
        "idle": (lane_cycles - macs) * prices.idle_mac,
        "blob": blob * prices.blob_byte,
        "dram": bursts * prices.dram_byte,
    }
    peak = machine.units * machine.lanes(2 if wide else 1)
    return LayerTiming(
        name, slicing, cycles, macs, lane_cycles, compute, dma, used, bursts, energy, machine.units, peak
    )


@njit(cache=True, nogil=True)
def _schedule(kinds, units, offsets, durations, outstanding, costs, unit_count):
    """Return start and end of each instruction on each tilelet, those of the DMA engine, and the time after each."""
    issue, latency, barrier = costs
    now = np.zeros(unit_count, np.int64)
    depth = outstanding.max() + 1 if len(outstanding) else 1
    complete = np.zeros((unit_count, depth), np.int64)  # of the last transfers, a ring for each tilelet
    transfers = np.zeros(unit_count, np.int64)
    starts, ends = np.zeros(len(units), np.int64), np.zeros(len(units), np.int64)
    dma_starts, dma_ends = np.full(len(kinds), -1, np.int64), np.full(len(kinds), -1, np.int64)
    marks = np.zeros(len(kinds), np.int64)
    engine, last_complete, latest = 0, 0, 0
    for i in range(len(kinds)):
        ready = 0
        for k in range(offsets[i], offsets[i + 1]):
            unit = units[k]
            starts[k] = now[unit]
            now[unit] += issue
            if kinds[i] == COMPUTE:
                now[unit] += durations[i]
            elif kinds[i] == WAIT and transfers[unit] > outstanding[i]:
                now[unit] = max(now[unit], complete[unit, (transfers[unit] - outstanding[i] - 1) % depth])
            ready = max(ready, now[unit])
            ends[k] = now[unit]
        if kinds[i] == LOAD or kinds[i] == STORE:
            dma_starts[i] = max(engine, ready)
            engine = dma_starts[i] + durations[i]
            dma_ends[i] = engine
            last_complete = engine + latency
            for k in range(offsets[i], offsets[i + 1]):
                unit = units[k]
                complete[unit, transfers[unit] % depth] = last_complete
                transfers[unit] += 1
        elif kinds[i] == BARRIER:
            ready = max(ready, last_complete) + barrier
            now[:] = ready
            for k in range(offsets[i], offsets[i + 1]):
                ends[k] = ready
        latest = max(latest, ready, last_complete)
        marks[i] = latest
    return starts, ends, dma_starts, dma_ends, marks
