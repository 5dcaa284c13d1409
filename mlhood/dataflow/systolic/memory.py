"""Traffic between DRAM and the array's memories, counted as in SCALE-Sim.

Half of each memory serves the array while the other is filled or drained. Partial sums of a product whose K is divided
into folds are written to DRAM after each fold, and are not read back.

The model is SCALE-Sim's with a bandwidth that never stalls the array (`InterfaceBandwidth: CALC`): a memory for
operands fetches each address once until its half is full, then discards all of it and starts again; the memory for
outputs drains its half once that is full. Both process the array's requests in the order of the cycles. Numba compiles
the simulation, which goes word by word.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from mlhood.dataflow.systolic.array import Array, ArrayLayer
from mlhood.dataflow.systolic.mapping import Counts, Mapping, count, fold_cycles, map_layer
from mlhood.errors import DataflowError

# SCALE-Sim fills half of a memory in 50 sets of a hundredth each
_SETS, _HALF = 100, 50
_KIB = 1024
MAX_WORDS = 1 << 26  # of an operand: half a gibibyte while it is simulated
MAX_FOLDS = 1 << 24
MAX_ACCESSES = 1 << 33  # of all operands: about ten seconds


@njit(cache=True, nogil=True)
def stream(lane, step, limits, words, capacity, lanes, by_inner, folds) -> int:
    """Return the words fetched of an operand that enters each lane one cycle later than the one before.

    Args:
        lane: [3, S], int64: contribution of each index along the lanes to the address, image row and image column.
        step: [3, T], int64: the contribution of each step, which is added. An address outside `limits` is skipped.
        limits: Height and width of the image.
        words: Number of addresses.
        capacity: Words in half of the memory.
        lanes: Of the array: its rows or its columns.
        by_inner: Whether the inner loop over folds moves along the lanes, or the outer one.
        folds: Folds of the outer and of the inner loop.
    """
    fetched = np.full(words, -1, np.int32)
    all_inside = _all_inside(lane, step, limits)
    # scalars instead of an array: the compiler keeps them in registers, which is twenty times faster
    reads, fill, refills = 0, 0, 0
    steps = step.shape[1]
    for outer in range(folds[0]):
        for inner in range(folds[1]):
            low = (inner if by_inner else outer) * lanes
            used = min(lanes, lane.shape[1] - low)
            for cycle in range(steps + used - 1):
                for index in range(max(0, cycle - steps + 1), min(cycle + 1, used)):
                    i, j = low + index, cycle - index
                    if all_inside or _inside(lane, i, step, j, limits):
                        address = lane[0, i] + step[0, j]
                        if fetched[address] != refills:
                            fetched[address] = refills
                            reads, fill = reads + 1, fill + 1
                            if fill == capacity:
                                fill, refills = 0, refills + 1
    return reads


@njit(cache=True, nogil=True)
def preload(row, column, limits, words, capacity, rows, columns, folds) -> int:
    """Return the words fetched of an operand that is shifted in at the start of each fold, its last row first."""
    fetched = np.full(words, -1, np.int32)
    all_inside = _all_inside(row, column, limits)
    reads, fill, refills = 0, 0, 0
    for outer in range(folds[0]):
        for inner in range(folds[1]):
            left, right = outer * columns, min((outer + 1) * columns, column.shape[1])
            for i in range(min((inner + 1) * rows, row.shape[1]) - 1, inner * rows - 1, -1):
                for j in range(left, right):
                    if all_inside or _inside(row, i, column, j, limits):
                        address = row[0, i] + column[0, j]
                        if fetched[address] != refills:
                            fetched[address] = refills
                            reads, fill = reads + 1, fill + 1
                            if fill == capacity:
                                fill, refills = 0, refills + 1
    return reads


@njit(cache=True, nogil=True)
def _all_inside(a, b, limits) -> bool:
    """Return whether all addresses are inside the image."""
    return a[1].max() + b[1].max() < limits[0] and a[2].max() + b[2].max() < limits[1]


@njit(cache=True, nogil=True)
def _inside(a, i, b, j, limits) -> bool:
    return a[1, i] + b[1, j] < limits[0] and a[2, i] + b[2, j] < limits[1]


@njit(cache=True, nogil=True)
def drain(begins, lengths, columns, total, width) -> int:
    """Return the words of outputs that go through their memory to DRAM, in lines of `width` words.

    The array never stalls: in a cycle at most `width` words arrive, and as many leave while a half is drained. A line
    that is drained before it is full counts as full, as in SCALE-Sim, unless it is the last one of its drain.

    Args:
        begins: [folds], int64: the cycle of a fold's first output.
        lengths: [folds], int64: outputs of each column, one a cycle, each column one cycle later than the one before.
        columns: [folds], int64: columns that a fold uses.
        total: Words of the memory, both halves.
        width: Words that go to DRAM in a cycle.
    """
    half = total // 2
    max_lines = (half + width - 1) // width  # of a drain
    # lines that were closed before they were full: their index and their number of words
    short = np.zeros((2, (lengths * columns).sum() // half + 2), np.int64)
    shorts, seen = 0, 0
    line, fill, sent = 0, 0, 0
    free, until, drained = total, 0, 0
    for fold in range(len(begins)):
        length, used = lengths[fold], columns[fold]
        for offset in range(length + used - 1):
            cycle = begins[fold] + offset
            left = min(offset, used - 1) - max(0, offset - length + 1) + 1
            while left > 0:
                # one word more than the half starts a drain, unless the previous one is not finished
                more = left if cycle < until else min(left, max(1, free - (total - half) + 1))
                line, fill = line + (fill + more) // width, (fill + more) % width
                free -= more
                left -= more
                if cycle >= until and free < total - half:
                    line, fill, shorts = _close(short, line, fill, shorts)
                    end = min(sent + max_lines, line)
                    words, seen = _words(short, shorts, seen, sent, end, width)
                    until = cycle + end - sent - 1
                    free, drained, sent = free + words, drained + words, end
    line, fill, shorts = _close(short, line, fill, shorts)
    while sent < line:
        end = min(sent + max_lines, line)
        words, seen = _words(short, shorts, seen, sent, end, width)
        drained, sent = drained + words, end
    return drained


@njit(cache=True, nogil=True)
def _close(short, line, fill, shorts) -> tuple[int, int, int]:
    """Close a partial line; return the numbers of lines, of words in the next one, and of short lines."""
    if fill == 0:
        return line, 0, shorts
    short[0, shorts], short[1, shorts] = line, fill
    return line + 1, 0, shorts + 1


@njit(cache=True, nogil=True)
def _words(short, shorts, seen, sent, end, width) -> tuple[int, int]:
    """Return the words of lines `sent` to `end`, of which only the last may be short, and the short ones so far."""
    while seen < shorts and short[0, seen] < end - 1:
        seen += 1
    last = short[1, seen] if seen < shorts and short[0, seen] == end - 1 else width
    return (end - sent - 1) * width + last, seen


@dataclass(frozen=True)
class Memories:
    """Words of the three operands from or to DRAM.

    Args:
        ifmap: Words of input read.
        filter: Words of weights read.
        ofmap: Words written, in lines as wide as the array, some of which SCALE-Sim counts as full although they are
            not.
    """

    ifmap: int
    filter: int
    ofmap: int

    @property
    def dram(self) -> int:
        """Words from and to DRAM."""
        return self.ifmap + self.filter + self.ofmap


@dataclass(frozen=True)
class _Operand:
    """A matrix's layout: element (i, j) has address, image row and image column rows[:, i] + columns[:, j]."""

    rows: np.ndarray
    columns: np.ndarray
    limits: tuple[int, int]
    words: int


def simulate_memories(layer: ArrayLayer, array: Array) -> Memories:
    """Return a layer's traffic, from a simulation of every access to the array's memories: linear in their number.

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

    layer: ArrayLayer
    array: Array

    @cached_property
    def mapping(self) -> Mapping:
        return map_layer(self.layer, self.array.dataflow)

    @cached_property
    def folds(self) -> tuple[int, int]:
        """Along the columns, the outer loop; along the rows, the inner one."""
        return -(-self.mapping.along_columns // self.array.columns), -(-self.mapping.along_rows // self.array.rows)

    def ifmap(self) -> int:
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

    def filter(self) -> int:
        k, n = np.arange(self.layer.k), np.arange(self.layer.n)
        rows, columns = np.stack([k * self.layer.n, 0 * k, 0 * k]), np.stack([n, 0 * n, 0 * n])
        operand = _Operand(rows, columns, (1, 1), self.layer.k * self.layer.n)
        size = self.array.filter_kib
        if self.array.dataflow == "ws":
            return self._preloaded(rows, columns, operand, size)
        if self.array.dataflow == "is":
            return self._streamed(rows, columns, operand, size, by_rows=True)
        return self._streamed(columns, rows, operand, size, by_rows=False)

    def _streamed(self, lane: np.ndarray, step: np.ndarray, operand: _Operand, kib: int, *, by_rows: bool) -> int:
        lanes = self.array.rows if by_rows else self.array.columns
        return stream(lane, step, operand.limits, operand.words, _half(kib), lanes, by_rows, self.folds)

    def _preloaded(self, row: np.ndarray, column: np.ndarray, operand: _Operand, kib: int) -> int:
        size = (self.array.rows, self.array.columns)
        return preload(row, column, operand.limits, operand.words, _half(kib), *size, self.folds)

    def ofmap(self) -> int:
        array, (outer, inner) = self.array, self.folds
        used_columns = np.minimum(array.columns, self.mapping.along_columns - array.columns * np.arange(outer))
        used_rows = np.minimum(array.rows, self.mapping.along_rows - array.rows * np.arange(inner))
        starts = fold_cycles(self.mapping, array) * np.arange(outer * inner)
        if array.dataflow == "os":
            # the last row's outputs come first; each unused row delays them by a cycle
            begins = starts + np.tile(self.mapping.steps - 1 + array.rows - used_rows, outer)
            lengths = np.tile(used_rows, outer)
        else:
            begins = starts + 2 * array.rows - 1
            lengths = np.full(outer * inner, self.mapping.steps)
        columns = np.repeat(used_columns, inner)
        return drain(begins, lengths, columns, _KIB * array.ofmap_kib, array.columns)


def _half(kib: int) -> int:
    """Return the words in half of a memory."""
    return _HALF * (_KIB * kib // _SETS)


ENERGY = {"MAC": 1, "register": 1, "hops": 2, "SRAM": 6, "DRAM": 200}
"""Energy of an access to a word, in multiply-accumulates: in an element, to its neighbour, at the edge, off chip."""
ENERGY_SOURCE = "Chen, Emer, Sze: Eyeriss, ISCA 2016, table IV: words of 16 bits, a commercial process of 65 nm"


def energy(counts: Counts, memories: Memories) -> dict[str, float]:
    """Return the energy of a layer by level, in multiply-accumulates.

    The register is read once per multiply-accumulate, for the stationary operand. Memories count where the array reads
    or writes them; their transfers from and to DRAM are included in the cost of DRAM.
    """
    accesses = {
        "MAC": counts.macs,
        "register": counts.macs,
        "hops": counts.hops,
        "SRAM": counts.ifmap_reads + counts.filter_reads + counts.ofmap_writes,
        "DRAM": memories.dram,
    }
    return {level: number * ENERGY[level] for level, number in accesses.items()}
