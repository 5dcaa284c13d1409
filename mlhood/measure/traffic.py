"""Memory traffic, counted and followed: arrays that know how many of their elements have been read and written, and in
which order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class Watched:
    """What an array that is watched tells of itself without being read.

    Args:
        array: What it holds; it is not copied.
        name: What reports call it.
    """

    def __init__(self, array: np.ndarray, name: str) -> None:
        self.array = array
        self.name = name

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


class Counted(Watched):
    """An array that counts.

    Args:
        array: What it holds; it is not copied.
        name: What reports call it.
    """

    def __init__(self, array: np.ndarray, name: str = "") -> None:
        super().__init__(array, name)
        self.reads = 0
        self.writes = 0

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
    def T(self) -> np.ndarray:  # noqa: N802 - NumPy's name
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
        self._touches: list[int] = []
        self._size = 0

    def array(self, array: np.ndarray, name: str = "") -> Traced:
        """Lay an array into the memory.

        Args:
            array: What it holds; it is not copied.
            name: What reports call it.
        """
        first = self._size
        self._size += -(-array.size // self.ALIGNMENT) * self.ALIGNMENT
        return Traced(array, np.arange(first, first + array.size).reshape(array.shape), self, name, array.size)

    def touch(self, places: np.ndarray) -> None:
        """Note that these places are read or written, one after the other."""
        self._touches += places.ravel().tolist()

    def addresses(self) -> np.ndarray:
        """Every touch so far: int32 [touches], counted in numbers from the begin of the memory."""
        return np.array(self._touches, np.int32)


class Traced(Watched, NDArrayOperatorsMixin):
    """An array whose touches are remembered in their order.

    A part of it is a view, as NumPy's are, and touches nothing until its numbers are needed: one after the other in
    loops, all of them in the order in which they lie where NumPy computes with them. In which order a library reads
    nobody can see, so a computation with all of the array at once is also noted in `Trace.whole`. Transposed and
    converted, it is still the same memory.

    Args:
        array: What it holds.
        places: int64, of the array's shape: where in the memory each number lies.
        trace: The memory.
        name: What reports call it.
        total: Numbers in all of the array, of which this may be a part.
    """

    def __init__(self, array: np.ndarray, places: np.ndarray, trace: Trace, name: str, total: int) -> None:
        super().__init__(array, name)
        self.places = places
        self.trace = trace
        self.total = total

    def __getitem__(self, place: Any) -> Any:
        """Read one number, or take a part."""
        found = self.array[place]
        if isinstance(found, np.ndarray):
            return self._view(found, self.places[place])
        self.trace.touch(self.places[place])
        return found

    def __setitem__(self, place: Any, value: Any) -> None:
        self.trace.touch(self.places[place])
        self.array[place] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all numbers, as every NumPy function does that is given them."""
        self.trace.touch(self.places)
        if self.array.size == self.total > 1:
            self.trace.whole.add(self.name)
        return self.array.astype(dtype or self.array.dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Compute with the numbers; what is written to, as by `+=`, is touched again."""
        given = [np.asarray(value) if isinstance(value, Traced) else value for value in inputs]
        if out is not None:
            options["out"] = tuple(map(_written, out))
        found = getattr(ufunc, method)(*given, **options)
        return found if out is None else out[0]

    def __getattr__(self, name: str) -> Any:
        """What else an array can do, with all numbers read first."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    @property
    def T(self) -> Traced:  # noqa: N802 - NumPy's name
        """The same memory, seen transposed."""
        return self._view(self.array.T, self.places.T)

    def astype(self, dtype: Any) -> Traced:
        """The same places holding another type, as if it had always been so."""
        return self._view(self.array.astype(dtype), self.places)

    def copy(self) -> Traced:
        """The same places again: a copy is walked as the original is."""
        return self.astype(self.dtype)

    def _view(self, array: np.ndarray, places: np.ndarray) -> Traced:
        return Traced(array, places, self.trace, self.name, self.total)


def _written(out: Any) -> Any:
    if not isinstance(out, Traced):
        return out
    out.trace.touch(out.places)
    return out.array


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
