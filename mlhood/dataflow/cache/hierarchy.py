"""A hierarchy of set-associative LRU caches.

A line that misses in one level is looked up in the next, and then cached in both. There is no prefetching, and a write
is a look-up like a read. So a level sees only the misses of the one above.

A set keeps its lines from the most to the least recently used: a look-up moves its line to the front, and a miss evicts
the last one. Lines are looked up in lists, in code compiled by Numba, as a call for each would cost more than the
look-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from mlhood.errors import CacheError
from mlhood.measure.machine import binary_size

EMPTY = -1


@njit(cache=True, nogil=True)
def look_up(lines: np.ndarray, tags: np.ndarray, shapes: np.ndarray, hit_levels: np.ndarray) -> None:
    """Look up lines in one level after the other; a line is then cached in all levels up to the one that hit.

    Args:
        lines: int64 [n], line numbers: addresses divided by the line size.
        tags: int64: the lines in each slot, level by level and set by set.
        shapes: int64 [levels, 3]: a level's first slot in `tags`, its number of sets, and its ways.
        hit_levels: uint8 [n], written: the level that hit; the number of levels for memory.
    """
    levels = shapes.shape[0]
    for i in range(lines.shape[0]):
        line = lines[i]
        level = 0
        while level < levels:
            slot = shapes[level, 0] + (line & (shapes[level, 1] - 1)) * shapes[level, 2]
            end = slot + shapes[level, 2]
            resident, shifted = tags[slot], line
            while resident != line:
                tags[slot] = shifted
                shifted = resident
                slot += 1
                if slot == end:
                    break
                resident = tags[slot]
            if slot < end:
                tags[slot] = shifted
                break
            level += 1
        hit_levels[i] = level


@njit(cache=True, nogil=True)
def look_up_nest(
    input_stationary: bool,
    sizes: np.ndarray,
    inputs: np.ndarray,
    steps: np.ndarray,
    weights: np.ndarray,
    outputs: np.ndarray,
    shift: int,
    tags: np.ndarray,
    shapes: np.ndarray,
    hits: np.ndarray,
) -> None:
    """Look up the loads and stores of a sliced convolution, one microkernel call after the other, and count the hits.

    Args:
        input_stationary: Whether input tiles are stationary and weight tiles streamed, or the reverse.
        sizes: int64 [8]: reduction steps of all slices and of one, k2, k3, windows and filters of a tile, bytes from
            window to window, bytes of an output tile.
        inputs: As in `mlhood.dataflow.cache.nest.AddressLayout`, like the next three.
        steps: Offset of each reduction step from a tile's first window.
        weights: Addresses of the slices of weight tiles.
        outputs: Addresses of the partial sums; loaded, except in the first slice, and stored line by line.
        shift: log2 of the line size.
        tags: As in `look_up`.
        shapes: As in `look_up`.
        hits: int64 [levels + 1], incremented: look-ups that each level hit.
    """
    depth, slice_depth, k2, k3, windows, filters, window_stride, out_bytes = sizes
    n_inputs, n_weights = inputs.shape[1], weights.shape[1]
    stationary, streamed = (n_inputs, n_weights) if input_stationary else (n_weights, n_inputs)
    max_lines = slice_depth * (windows + filters) + 2 * (out_bytes >> shift) + 4
    lines, hit_levels = np.empty(max_lines, np.int64), np.empty(max_lines, np.uint8)
    for part in range(inputs.shape[0]):
        part_steps = steps[part * slice_depth : min((part + 1) * slice_depth, depth)]
        for group3 in range(0, stationary, k3):
            for group2 in range(0, streamed, k2):
                for s in range(group3, min(group3 + k3, stationary)):
                    for p in range(group2, min(group2 + k2, streamed)):
                        i, f = (s, p) if input_stationary else (p, s)
                        a, b, out = inputs[part, i], weights[part, f], outputs[i, f]
                        n = _append_sums(lines, 0, out, out_bytes, shift) if part else 0
                        n = _append_operands(lines, n, a, part_steps, b, windows, filters, window_stride, shift)
                        n = _append_sums(lines, n, out, out_bytes, shift)
                        look_up(lines[:n], tags, shapes, hit_levels)
                        for level in hit_levels[:n]:
                            hits[level] += 1


@njit(cache=True, nogil=True)
def _append_sums(lines: np.ndarray, n: int, out: int, out_bytes: int, shift: int) -> int:
    """Append the lines of an output tile to the first `n`, and return their new number."""
    for line in range(out >> shift, ((out + out_bytes - 1) >> shift) + 1):
        lines[n] = line
        n += 1
    return n


@njit(cache=True, nogil=True)
def _append_operands(
    lines: np.ndarray,
    n: int,
    a: int,
    steps: np.ndarray,
    b: int,
    windows: int,
    filters: int,
    window_stride: int,
    shift: int,
) -> int:
    """Return the cache lines of the weights and of the input elements of each reduction step."""
    for step in steps:
        for _ in range(filters):
            lines[n] = b >> shift
            b += 4
            n += 1
        for window in range(windows):
            lines[n] = (a + step + window * window_stride) >> shift
            n += 1
    return n


@dataclass(frozen=True)
class Level:
    """One level of cache.

    Args:
        size: Bytes.
        ways: Lines per set; None: fully associative.
    """

    size: int
    ways: int | None = None

    def sets(self, line: int) -> int:
        """Return the number of sets, for lines of `line` bytes.

        Raises:
            CacheError: If it is not a power of two: the low bits of a line number select its set.
        """
        lines = self.size // line
        ways = self.ways or lines
        if lines < 1 or self.size % line or lines % ways or (lines // ways) & (lines // ways - 1):
            got = f"{binary_size(self.size)} in {self.ways} ways of {line} bytes"
            raise CacheError("invalid cache", expected="size = line * ways * a power of two", got=got)
        return lines // ways


@dataclass(frozen=True)
class HitCounts:
    """How many accesses each level served.

    Args:
        levels: Hits of each level, the first level first.
        memory: Misses of the last level.
    """

    levels: tuple[int, ...]
    memory: int

    @property
    def accesses(self) -> int:
        """All accesses."""
        return sum(self.levels) + self.memory

    @property
    def into(self) -> tuple[int, ...]:
        """Lines loaded into each level: its misses."""
        below = (*self.levels[1:], self.memory)
        return tuple(sum(below[level:]) for level in range(len(self.levels)))


class Hierarchy:
    """Levels of cache, empty at first.

    Args:
        levels: The first level first.
        line: Bytes of a line, the same in all levels.

    Raises:
        CacheError: If the line size or a level is invalid.
    """

    def __init__(self, levels: Sequence[Level], line: int = 64) -> None:
        if line < 1 or line & (line - 1):
            raise CacheError("invalid size of a cache line", expected="a power of two", got=line)
        if not levels:
            raise CacheError("a hierarchy needs levels", expected="1 or more", got=0)
        sets = [level.sets(line) for level in levels]
        lines = [level.size // line for level in levels]
        first_slots = np.cumsum([0, *lines[:-1]])
        self.line, self.levels = line, tuple(levels)
        self.shift = line.bit_length() - 1
        self.shapes = np.array([first_slots, sets, np.array(lines) // sets], np.int64).T.copy()
        self.tags = np.full(sum(lines), EMPTY, np.int64)
        self.counts = np.zeros(len(levels) + 1, np.int64)

    @property
    def hits(self) -> HitCounts:
        """The hits of each level since the hierarchy was built."""
        *levels, memory = (int(count) for count in self.counts)
        return HitCounts(tuple(levels), memory)
