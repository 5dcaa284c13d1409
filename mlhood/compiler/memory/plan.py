"""A static memory plan: offsets for buffers of known lifetimes, so that no two that are live at once overlap.

To find the smallest arena is NP-hard (dynamic storage allocation, problem SR2 of Garey and Johnson), so buffers are
placed one after another, each at the lowest address where it fits beside those that live at the same time and have been
placed before. What this gives depends on the order. Several are tried, as Glow does, and the best plan is kept; where
none reaches the live maximum, buffers that ended up at the top are moved to the front of the order a few times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.lir.program import Lifetime
from mlhood.errors import CompilerError

ALIGNMENT: int = 64
"""Bytes: a cache line, and the widest vector."""
REPAIRS = 24  # of the best order

# what a buffer is sorted by, largest first; ties by size and then as they come
ORDERS: dict[str, Callable[[Lifetime], float]] = {
    "size": lambda buffer: buffer.bytes,
    "lifetime": lambda buffer: buffer.last - buffer.first,
    "size x lifetime": lambda buffer: buffer.bytes * (buffer.last - buffer.first + 1),
    "as allocated": lambda buffer: -buffer.first,
    "as freed, backwards": lambda buffer: buffer.last,
}


@dataclass(frozen=True)
class MemoryPlan:
    """Where each buffer lies.

    Args:
        lifetimes: The buffers.
        offsets: First byte of each in the arena, by name.
        alignment: Of the offsets, in bytes.
        order: The order that gave this plan.
    """

    lifetimes: tuple[Lifetime, ...]
    offsets: Mapping[str, int]
    alignment: int
    order: str

    @property
    def bytes(self) -> int:
        """Size of the arena."""
        return max((self.offsets[buffer.name] + buffer.bytes for buffer in self.lifetimes), default=0)

    @property
    def live_maximum(self) -> int:
        """The most bytes that are live at once: no plan needs less."""
        return int(live_bytes(self.lifetimes).max(initial=0))

    @property
    def efficiency(self) -> float:
        """Live maximum over size of the arena; 1 for the best possible plan."""
        return self.live_maximum / self.bytes if self.bytes else 1.0

    def __str__(self) -> str:
        total = sum(buffer.bytes for buffer in self.lifetimes)
        lines = [
            f"{len(self.lifetimes)} buffers of {total:,} bytes in an arena of {self.bytes:,}, "
            f"at most {self.live_maximum:,} live: efficiency {self.efficiency:.3f}, order by {self.order}"
        ]
        for buffer in sorted(self.lifetimes, key=lambda buffer: (buffer.first, self.offsets[buffer.name])):
            where = f"{self.offsets[buffer.name]:>12,} + {buffer.bytes:>12,}"
            lines.append(f"{buffer.first:6} to {buffer.last:6}  {where}  {buffer.name}")
        return "\n".join(lines)


def live_bytes(lifetimes: Sequence[Lifetime]) -> np.ndarray:
    """Return how many bytes are live during each instruction: int64 [instructions]."""
    changes = np.zeros(max((buffer.last for buffer in lifetimes), default=-1) + 2, np.int64)
    for buffer in lifetimes:
        changes[buffer.first] += buffer.bytes
        changes[buffer.last + 1] -= buffer.bytes
    return np.cumsum(changes)[:-1]


def plan(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Place buffers in one arena.

    Args:
        lifetimes: The buffers.
        alignment: Of their offsets, in bytes.

    Raises:
        CompilerError: The alignment, a size or a lifetime is invalid, or two buffers have one name.
    """
    _check(lifetimes, alignment)
    neighbours, least = _neighbours(lifetimes), int(live_bytes(lifetimes).max(initial=0))
    best: MemoryPlan | None = None
    for name, key in ORDERS.items():
        order = sorted(range(len(lifetimes)), key=lambda i: (-key(lifetimes[i]), -lifetimes[i].bytes, i))
        for candidate in _repaired(lifetimes, order, neighbours, alignment, name):
            best = candidate if best is None or candidate.bytes < best.bytes else best
            if best.bytes <= least:
                return best
    return best or MemoryPlan((), {}, alignment, "none")


def _check(lifetimes: Sequence[Lifetime], alignment: int) -> None:
    if alignment < 1:
        raise CompilerError("invalid alignment", expected="1 byte or more", got=alignment)
    names: set[str] = set()
    for buffer in lifetimes:
        if buffer.name in names:
            raise CompilerError("two buffers have one name", got=repr(buffer.name))
        names.add(buffer.name)
        if buffer.bytes < 0 or not 0 <= buffer.first <= buffer.last:
            expected = "0 bytes or more, and a first instruction that is not after the last"
            raise CompilerError("invalid buffer", where=buffer.name, expected=expected, got=tuple(buffer[1:]))


def _neighbours(lifetimes: Sequence[Lifetime]) -> list[list[int]]:
    """Return for each buffer those that are live at the same time, at least during one instruction."""
    first = np.array([buffer.first for buffer in lifetimes], np.int64)
    last = np.array([buffer.last for buffer in lifetimes], np.int64)
    both = (first[:, None] <= last) & (first <= last[:, None])
    np.fill_diagonal(both, False)
    return [np.flatnonzero(row).tolist() for row in both]


def _repaired(
    lifetimes: Sequence[Lifetime], order: list[int], neighbours: list[list[int]], alignment: int, name: str
) -> Iterator[MemoryPlan]:
    """Yield the plan of an order, and those after its topmost buffer was moved to the front, again and again."""
    for _ in range(REPAIRS + 1):
        offsets = _place(lifetimes, order, neighbours, alignment)
        named = {lifetimes[i].name: offsets[i] for i in range(len(lifetimes))}
        yield MemoryPlan(tuple(lifetimes), named, alignment, name)
        top = max(order, key=lambda i: offsets[i] + lifetimes[i].bytes, default=None)
        if top is None or top == order[0]:
            return
        order = [top, *(i for i in order if i != top)]
        name = name if name.endswith("repaired") else f"{name}, repaired"


def _place(
    lifetimes: Sequence[Lifetime], order: Sequence[int], neighbours: list[list[int]], alignment: int
) -> dict[int, int]:
    """Place buffers in an order, each at the lowest address where it fits beside its neighbours."""
    offsets: dict[int, int] = {}
    for i in order:
        placed = sorted((offsets[j], offsets[j] + lifetimes[j].bytes) for j in neighbours[i] if j in offsets)
        offset = 0
        for start, end in placed:
            if offset + lifetimes[i].bytes <= start:
                break
            offset = max(offset, -(-end // alignment) * alignment)
        offsets[i] = offset
    return offsets
