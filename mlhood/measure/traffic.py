"""Memory traffic, counted and followed: arrays that know how many of their elements have been read and written, and in
which order."""

from __future__ import annotations

from typing import Any

import numpy as np


class Counted:
    """An array that counts.

    Args:
        array: What it holds; it is not copied.
        name: What reports call it.
    """

    def __init__(self, array: np.ndarray, name: str = "") -> None:
        self.array = array
        self.name = name
        self.reads = 0
        self.writes = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        """Read elements; a slice reads all of its elements, and gives a copy that refuses to be written."""
        found = self.array[place]
        self.reads += np.size(found)
        return _sealed(found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, place: Any, value: Any) -> None:
        self.writes += np.size(self.array[place])
        self.array[place] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read the whole array, as every NumPy function does that is given it."""
        self.reads += self.array.size
        return self.array.astype(dtype or self.array.dtype)

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The transposed array, which reads all of it."""
        return np.asarray(self).T

    def __matmul__(self, other: Any) -> np.ndarray:
        return np.asarray(self) @ np.asarray(other)

    def __rmatmul__(self, other: Any) -> np.ndarray:
        return np.asarray(other) @ np.asarray(self)


def _sealed(array: np.ndarray) -> np.ndarray:
    """A copy that cannot be written: a write to it would be lost, and not be counted."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class Trace:
    """A memory that remembers in which order its numbers have been touched.

    Arrays lie in it one after the other, each from a multiple of `ALIGNMENT` on.
    """

    ALIGNMENT = 64

    def __init__(self) -> None:
        self.whole: set[str] = set()
        self._touches: list[np.ndarray] = []
        self._size = 0

    def array(self, array: np.ndarray, name: str = "") -> Traced:
        """Lay an array into the memory.

        Args:
            array: What it holds; it is not copied.
            name: What reports call it.
        """
        first = self._size
        self._size += -(-array.size // self.ALIGNMENT) * self.ALIGNMENT
        return Traced(array, name, np.arange(first, first + array.size).reshape(array.shape), self)

    def touch(self, places: np.ndarray) -> None:
        """Note that these places are read or written, in this order."""
        self._touches.append(places)

    def addresses(self) -> np.ndarray:
        """Every touch so far: int64 [touches], counted in numbers from the begin of the memory."""
        empty = np.empty(0, np.int64)
        return np.concatenate([empty, *(np.ravel(places) for places in self._touches)])


class Traced(Counted):
    """An array whose touches are remembered in their order.

    What needs all of it at once, such as `np.dot` or a slice of everything, is also noted in `Trace.whole`: in which
    order a library reads, nobody can see. Transposed and converted, it is still the same memory.

    Args:
        array: What it holds.
        name: What reports call it.
        places: int64, of the array's shape: where in the memory each number lies.
        trace: The memory.
    """

    def __init__(self, array: np.ndarray, name: str, places: np.ndarray, trace: Trace) -> None:
        super().__init__(array, name)
        self.places = places
        self.trace = trace

    def __getitem__(self, place: Any) -> Any:
        """Read elements; a slice reads all of its elements one after the other."""
        places = self.places[place]
        self._touch(places)
        return super().__getitem__(place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self._touch(self.places[place])
        super().__setitem__(place, value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._touch(self.places)
        return super().__array__(dtype, copy)

    def _touch(self, places: Any) -> None:
        self.trace.touch(places)
        if np.size(places) == self.size > 1:
            self.trace.whole.add(self.name)

    @property
    def T(self) -> Traced:  # noqa: N802 - NumPy's name
        """The same memory, seen transposed; this reads nothing."""
        return Traced(self.array.T, self.name, self.places.T, self.trace)

    def astype(self, dtype: Any) -> Traced:
        """The same places holding another type, as if it had always been so."""
        return Traced(self.array.astype(dtype), self.name, self.places, self.trace)

    def copy(self) -> Traced:
        """The same places again: a copy is walked as the original is."""
        return self.astype(self.dtype)


def misses(addresses: np.ndarray, lines: int, line: int) -> int:
    """Count how often a small cache has to fetch a line.

    The cache is fully associative and throws out what has not been used for longest (LRU).

    Args:
        addresses: Integers [touches] in order, as `Trace.addresses` gives them.
        lines: How many lines fit.
        line: How many numbers a line holds.
    """
    held: dict[int, None] = {}
    fetched = 0
    for number in (np.asarray(addresses) // line).tolist():
        if number in held:
            del held[number]  # and put last again
        else:
            fetched += 1
            if len(held) == lines:
                del held[next(iter(held))]
        held[number] = None
    return fetched
