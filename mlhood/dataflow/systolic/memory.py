"""Traffic between DRAM and the array's memories, counted as in SCALE-Sim.

Half of each memory serves the array while the other is filled or drained. Partial sums of a product whose K is divided
into folds are written to DRAM after each fold, and are not read back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mlhood.dataflow.systolic import buffers
from mlhood.dataflow.systolic.array import Array
from mlhood.dataflow.systolic.layer import Layer
from mlhood.dataflow.systolic.mapping import Mapping, count, fold_cycles, map_layer
from mlhood.errors import DataflowError

# SCALE-Sim fills half of a memory in 50 sets of a hundredth each, the first time at 10 words a cycle
_SETS, _HALF = 100, 50
_FIRST_BANDWIDTH = 10
_KIB = 1024
MAX_WORDS = 1 << 26  # of an operand: half a gibibyte while it is simulated
MAX_FOLDS = 1 << 24
MAX_ACCESSES = 1 << 33  # of all operands: about ten seconds


@dataclass(frozen=True)
class Traffic:
    """One operand's requests to its memory, and the memory's to DRAM; cycles count from the layer's first, 0.

    Args:
        dram: Words from or to DRAM; to DRAM in lines as wide as the array, some of which SCALE-Sim counts as full
            although they are not.
        sram_start: Cycle of the first word that the array reads or writes.
        sram_stop: Cycle of the last one.
        dram_start: Cycle of the first transfer; negative if it is fetched before the array starts.
        dram_stop: Cycle of the last transfer.
        dram_final: Cycle in which the words that are last in order are transferred; other outputs may follow later.
    """

    dram: int
    sram_start: int
    sram_stop: int
    dram_start: int
    dram_stop: int
    dram_final: int


@dataclass(frozen=True)
class Memories:
    """The traffic of the three operands."""

    ifmap: Traffic
    filter: Traffic
    ofmap: Traffic

    @property
    def dram(self) -> int:
        """Words from and to DRAM."""
        return self.ifmap.dram + self.filter.dram + self.ofmap.dram


@dataclass(frozen=True)
class _Operand:
    """A matrix's layout: element (i, j) has address, image row and image column rows[:, i] + columns[:, j]."""

    rows: np.ndarray
    columns: np.ndarray
    limits: tuple[int, int]
    words: int


def simulate_memories(layer: Layer, array: Array) -> Memories:
    """Simulate every access of a layer to the array's memories, in time linear in their number.

    Raises:
        DataflowError: The layer has too many words, folds or accesses.
    """
    counts = count(layer, array)
    words = max(layer.height * layer.width * layer.channels, layer.k * layer.n)
    accesses = counts.ifmap_reads + counts.filter_reads + counts.ofmap_writes
    for what, number, limit in (
        ("words an operand", words, MAX_WORDS),
        ("folds", counts.folds, MAX_FOLDS),
        ("accesses", accesses, MAX_ACCESSES),
    ):
        if number > limit:
            raise DataflowError(
                "the layer is too large to simulate its memories",
                where=layer.name,
                expected=f"at most {limit:,} {what}",
                got=f"{number:,}",
                todo="use mlhood.dataflow.systolic.count, which needs no simulation",
            )
    simulation = _Simulation(layer, array)
    return Memories(ifmap=simulation.ifmap(), filter=simulation.filter(), ofmap=simulation.ofmap())


@dataclass(frozen=True)
class _Simulation:
    """A layer on an array: the addresses and the cycles of its requests."""

    layer: Layer
    array: Array

    @cached_property
    def mapping(self) -> Mapping:
        return map_layer(self.layer, self.array.dataflow)

    @cached_property
    def fold_cycles(self) -> int:
        return fold_cycles(self.mapping, self.array)

    @cached_property
    def folds(self) -> tuple[int, int]:
        """Along the columns, the outer loop; along the rows, the inner one."""
        return -(-self.mapping.along_columns // self.array.columns), -(-self.mapping.along_rows // self.array.rows)

    def ifmap(self) -> Traffic:
        image, pixels, window = self.layer, self.layer.m, np.arange(self.layer.k)
        top, left = np.divmod(np.arange(pixels), image.out_width)
        top, left = top * image.stride_height, left * image.stride_width
        down, remainder = np.divmod(window, image.kernel_width * image.channels)
        right, channel = np.divmod(remainder, image.channels)
        operand = _Operand(
            np.stack([(top * image.width + left) * image.channels, top, left]),
            np.stack([(down * image.width + right) * image.channels + channel, down, right]),
            (image.height, image.width),
            image.height * image.width * image.channels,
        )
        size = self.array.ifmap_kib
        if self.array.dataflow == "is":
            return self._preloaded(operand.columns, operand.rows, operand, size)
        if self.array.dataflow == "ws":
            return self._streamed(operand.columns, operand.rows, operand, size, by_rows=True)
        return self._streamed(operand.rows, operand.columns, operand, size, by_rows=True)

    def filter(self) -> Traffic:
        k, n = np.arange(self.layer.k), np.arange(self.layer.n)
        rows, columns = np.stack([k * self.layer.n, 0 * k, 0 * k]), np.stack([n, 0 * n, 0 * n])
        operand = _Operand(rows, columns, (1, 1), self.layer.k * self.layer.n)
        size = self.array.filter_kib
        if self.array.dataflow == "ws":
            return self._preloaded(rows, columns, operand, size)
        if self.array.dataflow == "is":
            return self._streamed(rows, columns, operand, size, by_rows=True)
        return self._streamed(columns, rows, operand, size, by_rows=False)

    def _streamed(self, lane: np.ndarray, step: np.ndarray, operand: _Operand, kib: int, *, by_rows: bool) -> Traffic:
        lanes = self.array.rows if by_rows else self.array.columns
        prefix = 0 if self.array.dataflow == "os" else self.array.rows
        memory = (operand.limits, operand.words, _HALF * _set_size(kib))
        result = buffers.stream(lane, step, *memory, lanes, by_rows, prefix, self.fold_cycles, self.folds)
        return _read_traffic(result, kib)

    def _preloaded(self, row: np.ndarray, column: np.ndarray, operand: _Operand, kib: int) -> Traffic:
        memory = (operand.limits, operand.words, _HALF * _set_size(kib))
        size = (self.array.rows, self.array.columns)
        return _read_traffic(buffers.preload(row, column, *memory, *size, self.fold_cycles, self.folds), kib)

    def ofmap(self) -> Traffic:
        array, (outer, inner) = self.array, self.folds
        used_columns = np.minimum(array.columns, self.mapping.along_columns - array.columns * np.arange(outer))
        used_rows = np.minimum(array.rows, self.mapping.along_rows - array.rows * np.arange(inner))
        starts = self.fold_cycles * np.arange(outer * inner)
        if array.dataflow == "os":
            # the last row's outputs come first; each unused row delays them by a cycle
            begins = starts + np.tile(self.mapping.steps - 1 + array.rows - used_rows, outer)
            lengths = np.tile(used_rows, outer)
        else:
            begins = starts + 2 * array.rows - 1
            lengths = np.full(outer * inner, self.mapping.steps)
        columns = np.repeat(used_columns, inner)
        last_cycle = self.fold_cycles * outer * inner - 1
        result = buffers.drain(begins, lengths, columns, _KIB * array.ofmap_kib, array.columns, last_cycle)
        dram, first, last, final = result.tolist()
        stop = int(begins[-1] + lengths[-1] + columns[-1] - 2)
        return Traffic(dram, int(begins[0]), stop, first, last, final)


def _set_size(kib: int) -> int:
    return _KIB * kib // _SETS


def _read_traffic(result: np.ndarray, kib: int) -> Traffic:
    """Return the cycles of an operand's transfers; a read takes a cycle from its memory and another one from DRAM.

    The first half is prefetched at a fixed bandwidth before the array starts; each later one while the array uses the
    one before.
    """
    reads, refills, last_refill, first, last = result.tolist()
    size = _set_size(kib)
    sets = -(-reads // size) if refills == 0 else _HALF
    prefetch_cycles = -(-sets * size // _FIRST_BANDWIDTH)
    if refills == 0:
        return Traffic(reads, first + 1, last + 1, -prefetch_cycles, -1, -1)
    return Traffic(reads, first + 1, last + 1, first - prefetch_cycles, last_refill + 1, last_refill + 1)
