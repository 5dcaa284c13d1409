"""Simulation of the double-buffered memories at the array's edges, word by word, compiled by Numba.

The model is SCALE-Sim's with a bandwidth that never stalls the array (`InterfaceBandwidth: CALC`): a memory for
operands fetches each address once until its half is full, then discards all of it and starts again; the memory for
outputs drains its half once that is full. Both process the array's requests in the order of the cycles.
"""

from __future__ import annotations

import numpy as np
from numba import njit


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
