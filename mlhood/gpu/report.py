"""What the memory of a GPU would have to serve for the accesses of a kernel, and which of them are wrong.

A warp is 32 threads of a block with consecutive numbers. The accesses of its threads at one place in the kernel, each
at its n-th time there since the last barrier, are one request. Global memory serves a request in sectors of 32 bytes.
Shared memory has 32 banks, each of which serves one word of 4 bytes at a time: a request takes as many passes as the
bank with the most words (CUDA C++ Programming Guide, "Compute Capability 5.x": "Global Memory" and "Shared Memory").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsInt

import numpy as np

WARP = 32
SECTOR = 32  # bytes
BANKS, WORD = 32, 4  # banks of shared memory; bytes that each serves at a time
FIELDS = ("block", "thread", "phase", "memory", "offset", "write", "place")
"""Of an access: numbers of the block, of the thread in it, of the barriers that it has passed, of the array, the offset
of the element in bytes, whether it is written, and where in the kernel."""
MOST_PROBLEMS = 3  # reported of one kind


class Memory(NamedTuple):
    """An array of global memory, or of each block's shared memory."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    shared: bool

    def element(self, offset: int) -> str:
        """Return an element as it is written in Python, such as `sa[3, 4]`; for arrays in row-major order."""
        index = np.unravel_index(offset // self.itemsize, self.shape)
        return f"{self.name}[{', '.join(map(str, index))}]"


class Place(NamedTuple):
    """An instruction of a kernel: its line in the file or cell, the text of the line, and where in the line."""

    line: int
    text: str
    position: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Access:
    """What one place in a kernel does to an array, in all threads.

    Args:
        array: Its name.
        shape: Its shape.
        shared: Whether it is in shared memory; else in global memory.
        write: Whether elements are written; else they are read.
        place: The line.
        requests: Number of requests.
        lanes: Number of threads in them, of all requests together.
        served: Sectors of global memory, or passes through shared memory, of all requests together.
        needed: The fewest that could serve as many different bytes.
        lanes_of_first: Offset in bytes that each thread of the first request accesses; -1 where it takes no part.
    """

    array: str
    shape: tuple[int, ...]
    shared: bool
    write: bool
    place: Place
    requests: int
    lanes: int
    served: int
    needed: int
    lanes_of_first: np.ndarray

    @property
    def per_request(self) -> float:
        """Sectors, or passes, per request."""
        return self.served / self.requests


@dataclass(frozen=True)
class Report:
    """The accesses of a launch.

    Args:
        accesses: By array and line.
        problems: Races, reads of elements that nobody has written, and barriers that not all threads reach.
        barriers: Barriers that a block passes.
    """

    accesses: tuple[Access, ...]
    problems: tuple[str, ...]
    barriers: int

    def of(self, *arrays: str, shared: bool = False) -> Report:
        """Return the part of the report that is about some arrays; about all of global, or shared, memory if none."""
        kept = [each for each in self.accesses if (each.array in arrays if arrays else each.shared == shared)]
        return Report(tuple(kept), self.problems, self.barriers)

    @property
    def requests(self) -> int:
        """Requests to global memory."""
        return sum(each.requests for each in self.accesses if not each.shared)

    @property
    def sectors(self) -> int:
        """Sectors of global memory."""
        return sum(each.served for each in self.accesses if not each.shared)

    @property
    def bytes(self) -> int:
        """Bytes of global memory that are served."""
        return SECTOR * self.sectors

    @property
    def passes(self) -> int:
        """Passes through shared memory."""
        return sum(each.served for each in self.accesses if each.shared)

    @property
    def conflicts(self) -> int:
        """Passes through shared memory beyond the fewest possible: conflicts of banks."""
        return sum(each.served - each.needed for each in self.accesses if each.shared)

    @property
    def summary(self) -> str:
        """The totals in words."""
        text = f"{self.requests:,} requests to global memory, {self.sectors:,} sectors, {self.bytes:,} bytes"
        if self.passes:
            text += f"; {self.passes:,} passes through shared memory, {self.conflicts:,} of them bank conflicts"
        return f"{text}; barriers: {self.barriers}" if self.barriers else text

    def __str__(self) -> str:
        heads = ("array", "", "line", "requests", "threads in one", "sectors", "passes")
        rows: list[tuple[str, ...]] = [heads]
        for each in self.accesses:
            served = ("", f"{each.per_request:.2f}") if each.shared else (f"{each.per_request:.2f}", "")
            kind, space = "written" if each.write else "read", "shared" if each.shared else "global"
            threads = f"{each.lanes / each.requests:.1f}"
            rows.append((each.array, f"{space}, {kind}", str(each.place.line), f"{each.requests:,}", threads, *served))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, self.summary, *self.problems])

    __repr__ = __str__


def analyse(
    log: np.ndarray,
    memories: Sequence[Memory],
    places: Sequence[Place],
    grid: Sequence[int],
    block: Sequence[int],
    barriers: Sequence[str],
) -> Report:
    """Return the report of a launch.

    Args:
        log: int64 [accesses, len(FIELDS)] in order of time.
        memories: The arrays.
        places: In the kernel.
        grid: Blocks along x, y and z.
        block: Threads of a block along x, y and z.
        barriers: What is wrong with barriers.
    """
    if not len(log):
        return Report((), tuple(barriers[:MOST_PROBLEMS]), 0)
    columns: dict[str, np.ndarray] = dict(zip(FIELDS, log.T, strict=True))
    requests = _requests(columns)
    accesses = []
    kinds = _number(columns["memory"], columns["place"], columns["write"])
    for kind in range(kinds.max() + 1):
        chosen = np.flatnonzero(kinds == kind)
        memory, place, write = (int(columns[name][chosen[0]]) for name in ("memory", "place", "write"))
        who, what = columns["thread"][chosen], columns["offset"][chosen]
        accesses.append(_access(memories[memory], places[place], bool(write), requests[chosen], who, what))
    names = [memory.name for memory in memories]
    accesses.sort(key=lambda each: (each.shared, names.index(each.array), each.place.line, each.write))
    problems = [*barriers[:MOST_PROBLEMS], *_races(columns, memories, places, grid, block)]
    problems += _unwritten(columns, memories, places, grid, block)
    return Report(tuple(accesses), tuple(problems), int(columns["phase"].max()))


def as_index(index: Iterable[SupportsInt], sizes: Sequence[int]) -> str:
    """Return a position along x, y and z as text, without the axes that nobody uses."""
    used = max([1, *(axis + 1 for axis, size in enumerate(sizes) if size > 1)])
    return f"({', '.join(str(int(i)) for i in tuple(index)[:used])})"


def _number(*keys: np.ndarray) -> np.ndarray:
    """Number rows that have the same keys: from 0, in the order of the keys, which are not negative."""
    number, largest = np.zeros(len(keys[0]), np.int64), 0
    for key in keys:
        size = int(key.max()) + 1
        if (largest + 1) * size > np.iinfo(np.int64).max:
            number = np.unique(number, return_inverse=True)[1]
            largest = int(number.max())
        number, largest = number * size + key, (largest + 1) * size
    return np.unique(number, return_inverse=True)[1]


def _requests(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Return the number of the request of each access."""
    same = _number(columns["block"], columns["thread"], columns["phase"], columns["place"], columns["memory"])
    order = np.argsort(same, kind="stable")
    starts = np.flatnonzero(np.diff(same[order], prepend=-1))
    time = np.empty(len(same), np.int64)
    time[order] = np.arange(len(same)) - np.repeat(starts, np.diff(np.append(starts, len(same))))
    warp = columns["thread"] // WARP
    return _number(columns["block"], warp, columns["phase"], columns["place"], columns["memory"], time)


def _access(
    memory: Memory, place: Place, write: bool, requests: np.ndarray, threads: np.ndarray, offsets: np.ndarray
) -> Access:
    requests = _number(requests)
    count = int(requests.max()) + 1
    words = max(memory.itemsize // WORD, 1)
    if memory.shared:
        unit = np.concatenate([offsets // WORD + word for word in range(words)])
        request = np.tile(requests, words)
    else:
        unit, request = offsets // SECTOR, requests
    owner, unit = _distinct(request, unit)
    different = np.bincount(owner, minlength=count)
    if memory.shared:
        busy = np.bincount(owner * BANKS + unit % BANKS, minlength=count * BANKS).reshape(count, BANKS)
        served, needed = busy.max(1), -(-different // BANKS)
    else:
        served, needed = different, -(-np.bincount(_distinct(requests, offsets)[0]) * memory.itemsize // SECTOR)
    first = np.full(WARP, -1)
    first[threads[requests == 0] % WARP] = offsets[requests == 0]
    total = int(served.sum()), int(needed.sum())
    return Access(memory.name, memory.shape, memory.shared, write, place, count, len(threads), *total, first)


def _distinct(request: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair of a request and a value once."""
    size = int(value.max()) + 1
    request, value = np.divmod(np.unique(request * size + value), size)
    return request, value


@dataclass(frozen=True)
class _Text:
    """Puts accesses into words."""

    columns: dict[str, np.ndarray]
    memories: Sequence[Memory]
    places: Sequence[Place]
    grid: Sequence[int]
    block: Sequence[int]

    def element(self, row: int) -> str:
        return self.memories[self.columns["memory"][row]].element(int(self.columns["offset"][row]))

    def block_of(self, row: int) -> str:
        return as_index(np.unravel_index(self.columns["block"][row], self.grid, order="F"), self.grid)

    def who(self, row: int, *, block: bool = False) -> str:
        """Return what a thread does, and where."""
        index = np.unravel_index(self.columns["thread"][row], self.block, order="F")
        verb = "written" if self.columns["write"][row] else "read"
        place = self.places[self.columns["place"][row]]
        of_block = f" of block {self.block_of(row)}" if block else ""
        return f"{verb} by thread {as_index(index, self.block)}{of_block} in line {place.line}"


def _races(columns: dict[str, np.ndarray], *rest: Sequence) -> list[str]:
    """Return the first element of each array that one thread writes and another accesses with no barrier in between."""
    text = _Text(columns, *rest)
    found = []
    for number, memory in enumerate(text.memories):
        rows = np.flatnonzero(columns["memory"] == number)
        if not len(rows):
            continue
        block, thread, phase, offset = (columns[name][rows] for name in ("block", "thread", "phase", "offset"))
        if pair := _conflicting(_number(block, phase, offset), thread, columns["write"][rows]):
            one, other = rows[pair[0]], rows[pair[1]]
            found.append(
                f"race on {text.element(one)} in block {text.block_of(one)}: {text.who(one)} and {text.who(other)}, "
                "with no barrier between them"
            )
        elif not memory.shared and (pair := _conflicting(_number(offset), block, columns["write"][rows])):
            one, other = rows[pair[0]], rows[pair[1]]
            found.append(
                f"race on {text.element(one)}: {text.who(one, block=True)} and {text.who(other, block=True)}, "
                "and no barrier holds between blocks"
            )
    return found


def _conflicting(groups: np.ndarray, actors: np.ndarray, writes: np.ndarray) -> tuple[int, int] | None:
    """Return a write and another actor's access of the first group that has such accesses; None if no group has."""
    if not writes.any():
        return None
    size = int(groups.max()) + 1
    least, most, written = np.full(size, np.iinfo(np.int64).max), np.full(size, -1), np.zeros(size, np.int64)
    np.minimum.at(least, groups, actors)
    np.maximum.at(most, groups, actors)
    np.maximum.at(written, groups, writes)
    conflicting = np.flatnonzero(written & (least != most))
    if not len(conflicting):
        return None
    members = np.flatnonzero(groups == conflicting[0])
    one = members[writes[members] == 1][0]
    return int(one), int(members[actors[members] != actors[one]][0])


def _unwritten(columns: dict[str, np.ndarray], *rest: Sequence) -> list[str]:
    """Return elements of shared memory that are read although no thread has written them up to the next barrier."""
    text = _Text(columns, *rest)
    shared = np.array([memory.shared for memory in text.memories])[columns["memory"]]
    rows = np.flatnonzero(shared)
    if not len(rows):
        return []
    elements = _number(*(columns[name][rows] for name in ("memory", "offset", "block")))
    first = np.full(int(elements.max()) + 1, np.iinfo(np.int64).max)
    writes = columns["write"][rows] == 1
    np.minimum.at(first, elements[writes], columns["phase"][rows][writes])
    early = rows[~writes & (columns["phase"][rows] < first[elements])]
    return [
        f"{text.element(row)} in block {text.block_of(row)} is {text.who(row)}, but nobody has written it"
        for row in early[:MOST_PROBLEMS]
    ]
