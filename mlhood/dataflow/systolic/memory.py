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

from mlhood.dataflow.systolic.array import Array, Layer
from mlhood.dataflow.systolic.mapping import Mapping, count, fold_cycles, map_layer
from mlhood.errors import DataflowError

# SCALE-Sim fills half of a memory in 50 sets of a hundredth each, the first time at 10 words a cycle
_SETS, _HALF = 100, 50
_FIRST_BANDWIDTH = 10
_KIB = 1024
MAX_WORDS = 1 << 26  # of an operand: half a gibibyte while it is simulated
MAX_FOLDS = 1 << 24
MAX_ACCESSES = 1 << 33  # of all operands: about ten seconds


@njit(cache=True, nogil=True)
def stream(lane, step, limits, words, capacity, lanes, by_inner, prefix, fold_cycles, folds) -> np.ndarray:
    """Simulate an operand that enters each lane one cycle later than the one before, over all folds.

    Args:
        lane: [3, S], int64: contribution of each index along the lanes to the address, image row and image column.
        step: [3, T], int64: the contribution of each step, which is added. An address outside `limits` is skipped.
        limits: Height and width of the image.
        words: Number of addresses.
        capacity: Words in half of the memory.
        lanes: Of the array: its rows or its columns.
        by_inner: Whether the inner loop over folds moves along the lanes, or the outer one.
        prefix: Cycles of a fold before the first word.
        fold_cycles: Cycles of a fold.
        folds: Folds of the outer and of the inner loop.

    Returns:
        [5], int64: words fetched, how often the half was filled, the cycle of the last time, the first and the last
        cycle with a request.
    """
    fetched = np.full(words, -1, np.int32)
    all_inside = _all_inside(lane, step, limits)
    # scalars instead of an array: the compiler keeps them in registers, which is twenty times faster
    reads, fill, refills, last_refill, first, last = 0, 0, 0, -1, -1, -1
    steps = step.shape[1]
    for outer in range(folds[0]):
        for inner in range(folds[1]):
            begin = (outer * folds[1] + inner) * fold_cycles + prefix
            low = (inner if by_inner else outer) * lanes
            used = min(lanes, lane.shape[1] - low)
            for cycle in range(begin, begin + steps + used - 1):
                since = cycle - begin
                for index in range(max(0, since - steps + 1), min(since + 1, used)):
                    i, j = low + index, since - index
                    if all_inside or _inside(lane, i, step, j, limits):
                        last = cycle
                        first = cycle if first < 0 else first
                        address = lane[0, i] + step[0, j]
                        if fetched[address] != refills:
                            fetched[address] = refills
                            reads, fill = reads + 1, fill + 1
                            if fill == capacity:
                                fill, refills, last_refill = 0, refills + 1, cycle
    return np.array([reads, refills, last_refill, first, last], np.int64)


@njit(cache=True, nogil=True)
def preload(row, column, limits, words, capacity, rows, columns, fold_cycles, folds) -> np.ndarray:
    """Simulate an operand that is shifted in at the start of each fold, its last row first; returns as `stream`."""
    fetched = np.full(words, -1, np.int32)
    all_inside = _all_inside(row, column, limits)
    reads, fill, refills, last_refill, first, last = 0, 0, 0, -1, -1, -1
    for outer in range(folds[0]):
        for inner in range(folds[1]):
            begin = (outer * folds[1] + inner) * fold_cycles
            left, right = outer * columns, min((outer + 1) * columns, column.shape[1])
            for cycle in range(begin, begin + rows):
                i = inner * rows + rows - 1 - (cycle - begin)
                if i >= row.shape[1]:
                    continue
                for j in range(left, right):
                    if all_inside or _inside(row, i, column, j, limits):
                        last = cycle
                        first = cycle if first < 0 else first
                        address = row[0, i] + column[0, j]
                        if fetched[address] != refills:
                            fetched[address] = refills
                            reads, fill = reads + 1, fill + 1
                            if fill == capacity:
                                fill, refills, last_refill = 0, refills + 1, cycle
    return np.array([reads, refills, last_refill, first, last], np.int64)


@njit(cache=True, nogil=True)
def _all_inside(a, b, limits) -> bool:
    """Return whether all addresses are inside the image."""
    return a[1].max() + b[1].max() < limits[0] and a[2].max() + b[2].max() < limits[1]


@njit(cache=True, nogil=True)
def _inside(a, i, b, j, limits) -> bool:
    return a[1, i] + b[1, j] < limits[0] and a[2, i] + b[2, j] < limits[1]


@njit(cache=True, nogil=True)
def drain(begins, lengths, columns, total, width, last_cycle) -> np.ndarray:
    """Simulate the outputs on their way through their memory to DRAM, in lines of `width` words.

    The array never stalls: in a cycle at most `width` words arrive, and as many leave while a half is drained.

    Args:
        begins: [folds], int64: the cycle of a fold's first output.
        lengths: [folds], int64: outputs of each column, one a cycle, each column one cycle later than the one before.
        columns: [folds], int64: columns that a fold uses.
        total: Words of the memory, both halves.
        width: Words that go to DRAM in a cycle.
        last_cycle: Of the layer; then the remaining words are drained.

    Returns:
        [4], int64: words as SCALE-Sim counts them, and the cycles in which the first line leaves, in which the last of
        all leaves, and in which the line produced last does. A line that is drained before it is full counts as full,
        unless it is the last one of its drain.
    """
    half = total // 2
    max_lines = (half + width - 1) // width  # of a drain
    # lines that were closed before they were full: their index and their number of words
    short = np.zeros((2, (lengths * columns).sum() // half + 2), np.int64)
    shorts, seen = 0, 0
    line, fill, sent = 0, 0, 0
    free, until, words = total, 0, 0
    state = np.array([0, -1, 0, 0], np.int64)
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
                    until = _send(state, cycle, words, end - sent)
                    free, sent = free + words, end
    line, fill, shorts = _close(short, line, fill, shorts)
    cycle = last_cycle
    while sent < line:
        end = min(sent + max_lines, line)
        words, seen = _words(short, shorts, seen, sent, end, width)
        cycle = _send(state, cycle, words, end - sent) + 1
        sent = end
    return state


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


@njit(cache=True, nogil=True)
def _send(state, cycle, words, lines) -> int:
    """Send lines to DRAM, one a cycle, and return the cycle of the last."""
    state[0] += words
    if state[1] < 0:
        state[1] = cycle
    state[3] = cycle + lines - 1
    state[2] = max(state[2], state[3])
    return state[3]


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
        result = stream(lane, step, *memory, lanes, by_rows, prefix, self.fold_cycles, self.folds)
        return _read_traffic(result, kib)

    def _preloaded(self, row: np.ndarray, column: np.ndarray, operand: _Operand, kib: int) -> Traffic:
        memory = (operand.limits, operand.words, _HALF * _set_size(kib))
        size = (self.array.rows, self.array.columns)
        return _read_traffic(preload(row, column, *memory, *size, self.fold_cycles, self.folds), kib)

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
        result = drain(begins, lengths, columns, _KIB * array.ofmap_kib, array.columns, last_cycle)
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
