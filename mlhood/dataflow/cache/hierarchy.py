"""A hierarchy of set-associative LRU caches.

A line that misses in one level is looked up in the next, and then cached in both. There is no prefetching, and a write
is a look-up like a read. So a level sees only the misses of the one above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.cache import lru
from mlhood.errors import CacheError
from mlhood.measure.machine import binary_size


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
        self.tags = np.full(sum(lines), lru.EMPTY, np.int64)
        self.counts = np.zeros(len(levels) + 1, np.int64)

    @property
    def hits(self) -> HitCounts:
        """The hits of each level since the hierarchy was built."""
        *levels, memory = (int(count) for count in self.counts)
        return HitCounts(tuple(levels), memory)

    def access(self, addresses: np.ndarray, sizes: np.ndarray | int = 1) -> None:
        """Look up accesses; one that crosses lines counts once, as a hit of the farthest level that served it.

        Args:
            addresses: int [n], the first byte of each access, none negative.
            sizes: int [n] or one for all: bytes of each access.

        Raises:
            CacheError: If an address is negative or a size less than 1.
        """
        starts = np.ascontiguousarray(addresses, np.int64)
        lengths = np.ascontiguousarray(np.broadcast_to(sizes, starts.shape), np.int64)
        if starts.size and (starts.min() < 0 or lengths.min() < 1):
            expected = "addresses of at least 0, sizes of at least 1 byte"
            got = f"address {starts.min()}, {lengths.min()} bytes"
            raise CacheError("invalid address or size", expected=expected, got=got)
        if not starts.size:
            return
        first = starts >> self.shift
        lines_each = ((starts + lengths - 1) >> self.shift) - first + 1
        begins = np.cumsum(lines_each) - lines_each
        lines = np.repeat(first - begins, lines_each) + np.arange(lines_each.sum())
        hit_levels = np.empty(lines.size, np.uint8)
        lru.look_up(lines, self.tags, self.shapes, hit_levels)
        self.counts += np.bincount(np.maximum.reduceat(hit_levels, begins), minlength=self.counts.size)
