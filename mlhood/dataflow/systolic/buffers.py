"""The double-buffered memories at the array's edges, word for word, compiled by Numba.

The model is SCALE-Sim's with a bandwidth that never lets the array wait (`InterfaceBandwidth: CALC`): a memory for
operands fetches each address once while it fills its half, then forgets all of it and fills again; the memory for
outputs hands its half over once that is full. Both run over the array's requests in the order of the cycles.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def streamed(lane, step, limits, words, capacity, lanes, by_inner, prefix, fold_cycles, folds) -> np.ndarray:
    """Follow an operand that enters lane by lane, each one cycle after the one before, over all folds.

    Args:
        lane: [3, S], int64: part of the address, image row and image column of each index along the lanes.
        step: [3, T], int64: the same of each step; the two add up. An address outside `limits` is not asked for.
        limits: Height and width of the image.
        words: How many addresses there are.
        capacity: Words in half of the memory.
        lanes: Of the array: its rows or its columns.
        by_inner: Whether the inner loop over folds moves along the lanes, or the outer one.
        prefix: Cycles of a fold before the first word.
        fold_cycles: Cycles of a fold.
        folds: Folds of the outer and of the inner loop.

    Returns:
        [5], int64: words fetched, how often the half was full, the cycle of the last time, the first and the last
        cycle with a request.
    """
    fetched = np.full(words, -1, np.int32)
    whole = _whole(lane, step, limits)
    # scalars, not an array: the compiler keeps them in registers, which makes this twenty times as fast
    reads, inside, refills, last_refill, first, last = 0, 0, 0, -1, -1, -1
    steps = step.shape[1]
    for outer in range(folds[0]):
        for inner in range(folds[1]):
            begin = (outer * folds[1] + inner) * fold_cycles + prefix
            low = (inner if by_inner else outer) * lanes
            used = min(lanes, lane.shape[1] - low)
            for cycle in range(begin, begin + steps + used - 1):
                since = cycle - begin
                for index in range(max(0, since - steps + 1), min(since + 1, used)):
                    at, now = low + index, since - index
                    if whole or _within(lane, at, step, now, limits):
                        last = cycle
                        first = cycle if first < 0 else first
                        address = lane[0, at] + step[0, now]
                        if fetched[address] != refills:
                            fetched[address] = refills
                            reads, inside = reads + 1, inside + 1
                            if inside == capacity:
                                inside, refills, last_refill = 0, refills + 1, cycle
    return np.array([reads, refills, last_refill, first, last], np.int64)


@njit(cache=True, nogil=True)
def preloaded(row, column, limits, words, capacity, rows, columns, fold_cycles, folds) -> np.ndarray:
    """Follow an operand that is shifted in at the beginning of each fold, the last row's part first; as `streamed`."""
    fetched = np.full(words, -1, np.int32)
    whole = _whole(row, column, limits)
    reads, inside, refills, last_refill, first, last = 0, 0, 0, -1, -1, -1
    for outer in range(folds[0]):
        for inner in range(folds[1]):
            begin = (outer * folds[1] + inner) * fold_cycles
            left, right = outer * columns, min((outer + 1) * columns, column.shape[1])
            for cycle in range(begin, begin + rows):
                at = inner * rows + rows - 1 - (cycle - begin)
                if at >= row.shape[1]:
                    continue
                for now in range(left, right):
                    if whole or _within(row, at, column, now, limits):
                        last = cycle
                        first = cycle if first < 0 else first
                        address = row[0, at] + column[0, now]
                        if fetched[address] != refills:
                            fetched[address] = refills
                            reads, inside = reads + 1, inside + 1
                            if inside == capacity:
                                inside, refills, last_refill = 0, refills + 1, cycle
    return np.array([reads, refills, last_refill, first, last], np.int64)


@njit(cache=True, nogil=True)
def _whole(one, other, limits) -> bool:
    """Return whether no address lies outside the image."""
    return one[1].max() + other[1].max() < limits[0] and one[2].max() + other[2].max() < limits[1]


@njit(cache=True, nogil=True)
def _within(one, i, other, j, limits) -> bool:
    return one[1, i] + other[1, j] < limits[0] and one[2, i] + other[2, j] < limits[1]


@njit(cache=True, nogil=True)
def drained(begins, lengths, columns, total, width, last_cycle) -> np.ndarray:
    """Follow the outputs into their memory and on to DRAM, in lines of `width` words.

    The array never waits: in a cycle at most `width` words come, and as many leave while a half is handed over.

    Args:
        begins: [folds], int64: the cycle of a fold's first output.
        lengths: [folds], int64: how many outputs leave each column, one a cycle, each column one cycle later.
        columns: [folds], int64: how many columns a fold uses.
        total: Words of the memory, both halves.
        width: Words that go to DRAM in a cycle.
        last_cycle: Of the layer; then what is left is handed over.

    Returns:
        [4], int64: words as SCALE-Sim counts them, and the cycles in which the first line leaves, in which the last one
        of all leaves, and in which the line made last does. A line that is handed over before it is full counts as
        full, unless it is the last one of its handing over.
    """
    half = total // 2
    most = (half + width - 1) // width
    # lines that were closed before they were full: where, and with how many words
    short = np.zeros((2, (lengths * columns).sum() // half + 2), np.int64)
    shorts, seen = 0, 0
    line, inside, sent = 0, 0, 0
    free, until, words = total, 0, 0
    state = np.array([0, -1, 0, 0], np.int64)
    for fold in range(len(begins)):
        length, used = lengths[fold], columns[fold]
        for offset in range(length + used - 1):
            cycle = begins[fold] + offset
            left = min(offset, used - 1) - max(0, offset - length + 1) + 1
            while left > 0:
                # a word more than the half, and the memory hands over, unless it still does
                more = left if cycle < until else min(left, max(1, free - (total - half) + 1))
                line, inside = line + (inside + more) // width, (inside + more) % width
                free -= more
                left -= more
                if cycle >= until and free < total - half:
                    line, inside, shorts = _close(short, line, inside, shorts)
                    end = min(sent + most, line)
                    words, seen = _words(short, shorts, seen, sent, end, width)
                    until = _send(state, cycle, words, end - sent)
                    free, sent = free + words, end
    line, inside, shorts = _close(short, line, inside, shorts)
    cycle = last_cycle
    while sent < line:
        end = min(sent + most, line)
        words, seen = _words(short, shorts, seen, sent, end, width)
        cycle = _send(state, cycle, words, end - sent) + 1
        sent = end
    return state


@njit(cache=True, nogil=True)
def _close(short, line, inside, shorts) -> tuple[int, int, int]:
    """Close a line begun, and return the number of lines, the words in the next one, and of short lines."""
    if inside == 0:
        return line, 0, shorts
    short[0, shorts], short[1, shorts] = line, inside
    return line + 1, 0, shorts + 1


@njit(cache=True, nogil=True)
def _words(short, shorts, seen, sent, end, width) -> tuple[int, int]:
    """Return the words of lines `sent` to `end`, of which only the last may be short, and how many short ones came."""
    while seen < shorts and short[0, seen] < end - 1:
        seen += 1
    last = short[1, seen] if seen < shorts and short[0, seen] == end - 1 else width
    return (end - sent - 1) * width + last, seen


@njit(cache=True, nogil=True)
def _send(state, cycle, words, lines) -> int:
    """Hand lines over, one a cycle, and return the cycle of the last."""
    state[0] += words
    if state[1] < 0:
        state[1] = cycle
    state[3] = cycle + lines - 1
    state[2] = max(state[2], state[3])
    return state[3]
