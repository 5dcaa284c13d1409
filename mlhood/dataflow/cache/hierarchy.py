"""Levels of cache that look-ups run through: set associative, the least recently used line leaves.

A line that one level lacks is looked for in the next, and then held by both; nothing is fetched ahead, and a write is
a look-up like a read. So a level below sees only what the one above lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.cache import lru
from mlhood.errors import DataflowError
from mlhood.measure.machine import binary_size


class CacheError(DataflowError):
    """A cache cannot be built as asked."""

    stage = "cache"


@dataclass(frozen=True)
class Level:
    """One level of cache.

    Args:
        size: Bytes.
        ways: Lines of a set; None: all lines are one set (fully associative).
    """

    size: int
    ways: int | None = None

    def sets(self, line: int) -> int:
        """Return how many sets there are.

        Raises:
            CacheError: If they are no power of two: the low bits of a line's number choose its set.
        """
        lines = self.size // line
        ways = self.ways or lines
        if lines < 1 or self.size % line or lines % ways or (lines // ways) & (lines // ways - 1):
            raise CacheError(
                "this is no cache", expected="size = line * ways * a power of two",
                got=f"{binary_size(self.size)} in {self.ways} ways of {line} bytes",
            )  # fmt: skip
        return lines // ways


@dataclass(frozen=True)
class Served:
    """How many accesses each level served.

    Args:
        levels: One number a level, the first level first.
        memory: The rest.
    """

    levels: tuple[int, ...]
    memory: int

    @property
    def accesses(self) -> int:
        """All of them."""
        return sum(self.levels) + self.memory

    @property
    def into(self) -> tuple[int, ...]:
        """How many lines were loaded into each level."""
        below = (*self.levels[1:], self.memory)
        return tuple(sum(below[number:]) for number in range(len(self.levels)))


class Hierarchy:
    """Levels of cache, empty at first.

    Args:
        levels: The first level first.
        line: Bytes of a line, the same in all levels.

    Raises:
        CacheError: If a level cannot be built.
    """

    def __init__(self, levels: Sequence[Level], line: int = 64) -> None:
        if line < 1 or line & (line - 1):
            raise CacheError("this is no cache line", expected="a power of two", got=line)
        if not levels:
            raise CacheError("a hierarchy has levels", expected="1 or more", got=0)
        sets = [level.sets(line) for level in levels]
        lines = [level.size // line for level in levels]
        starts = np.cumsum([0, *lines[:-1]])
        self.line, self.levels = line, tuple(levels)
        self.shift = line.bit_length() - 1
        self.shapes = np.array([starts, sets, np.array(lines) // sets], np.int64).T.copy()
        self.tags = np.full(sum(lines), lru.EMPTY, np.int64)
        self.counts = np.zeros(len(levels) + 1, np.int64)

    @property
    def served(self) -> Served:
        """What each level served since the hierarchy was built."""
        *levels, memory = (int(count) for count in self.counts)
        return Served(tuple(levels), memory)

    def access(self, addresses: np.ndarray, sizes: np.ndarray | int = 1) -> None:
        """Look up bytes; an access that crosses lines counts once, for the farthest level that it needs.

        Args:
            addresses: int [n], the first byte of each access, none negative.
            sizes: int [n] or one for all: bytes of each access.

        Raises:
            CacheError: If an address is negative or a size less than 1.
        """
        starts = np.ascontiguousarray(addresses, np.int64)
        lengths = np.ascontiguousarray(np.broadcast_to(sizes, starts.shape), np.int64)
        if starts.size and (starts.min() < 0 or lengths.min() < 1):
            raise CacheError("this is no access", expected="addresses from 0 on, at least 1 byte each",
                             got=f"address {starts.min()}, {lengths.min()} bytes")  # fmt: skip
        if not starts.size:
            return
        first = starts >> self.shift
        each = ((starts + lengths - 1) >> self.shift) - first + 1
        begins = np.cumsum(each) - each
        lines = np.repeat(first - begins, each) + np.arange(each.sum())
        found = np.empty(lines.size, np.uint8)
        lru.look_up(lines, self.tags, self.shapes, found)
        self.counts += np.bincount(np.maximum.reduceat(found, begins), minlength=self.counts.size)
