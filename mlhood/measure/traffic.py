"""Memory traffic of Python code: arrays that count or trace the accesses to their elements, and an LRU cache model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin


class InstrumentedArray:
    """Base of arrays that observe accesses; reading these attributes is not an access.

    Args:
        array: The data; not copied.
        name: Name in reports.
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


class Counted(InstrumentedArray):
    """An array that counts how many elements are read and written: `reads`, `writes`.

    Args:
        array: The data; not copied.
        name: Name in reports.
    """

    def __init__(self, array: np.ndarray, name: str = "") -> None:
        super().__init__(array, name)
        self.reads = 0
        self.writes = 0

    def __getitem__(self, index: Any) -> Any:
        """Read elements; a slice reads all of its elements, and returns a read-only copy."""
        value = self.array[index]
        self.reads += np.size(value)
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False  # a write to the copy would be lost, and not be counted
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        self.writes += np.size(self.array[index])
        self.array[index] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read the whole array, as every NumPy function does with its arguments."""
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


class Trace:
    """An address space that records the order of accesses to its arrays.

    Arrays are allocated one after another, aligned to `ALIGNMENT` elements; an address counts elements.
    """

    ALIGNMENT = 64

    def __init__(self) -> None:
        self.whole: set[str] = set()
        self._accesses: list[int] = []
        self._size = 0

    def array(self, array: np.ndarray, name: str = "") -> TracedArray:
        """Allocate an array.

        Args:
            array: The data; not copied.
            name: Name in reports.
        """
        first = self._size
        self._size += -(-array.size // self.ALIGNMENT) * self.ALIGNMENT
        addresses = np.arange(first, first + array.size).reshape(array.shape)
        return TracedArray(array, addresses, self, name, array.size)

    def record(self, addresses: np.ndarray) -> None:
        """Record reads or writes of these addresses, in order."""
        self._accesses += addresses.ravel().tolist()

    def addresses(self) -> np.ndarray:
        """Return all accesses so far: int32 [accesses]."""
        return np.array(self._accesses, np.int32)


class TracedArray(InstrumentedArray, NDArrayOperatorsMixin):
    """An array whose accesses are recorded in a trace.

    A slice of it is a view, as in NumPy, and accesses nothing until its elements are needed: individually in loops, or
    all of them in memory order where NumPy computes with them. The access order inside a library is unknown, so a
    computation with the whole array at once is also recorded in `Trace.whole`. Transposed and converted arrays keep
    their addresses.

    Args:
        array: The data.
        addresses: int64, of the array's shape: address of each element.
        trace: The trace.
        name: Name in reports.
        total: Number of elements of the allocated array, of which this may be a part.
    """

    def __init__(self, array: np.ndarray, addresses: np.ndarray, trace: Trace, name: str, total: int) -> None:
        super().__init__(array, name)
        self.addresses = addresses
        self.trace = trace
        self.total = total

    def __getitem__(self, index: Any) -> Any:
        """Read one element, or return a view."""
        value = self.array[index]
        if isinstance(value, np.ndarray):
            return self._view(value, self.addresses[index])
        self.trace.record(self.addresses[index])
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        self.trace.record(self.addresses[index])
        self.array[index] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all elements, as every NumPy function does with its arguments."""
        self.trace.record(self.addresses)
        if self.array.size == self.total > 1:
            self.trace.whole.add(self.name)
        return self.array.astype(dtype or self.array.dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """Compute with the elements; the output of an in-place operation such as `+=` is accessed again."""
        operands = [np.asarray(value) if isinstance(value, TracedArray) else value for value in inputs]
        if out is not None:
            options["out"] = tuple(map(_record_write, out))
        result = getattr(ufunc, method)(*operands, **options)
        return result if out is None else out[0]

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the array, after reading all elements."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    @property
    def T(self) -> TracedArray:  # noqa: N802 - NumPy's name
        """A transposed view."""
        return self._view(self.array.T, self.addresses.T)

    def astype(self, dtype: Any) -> TracedArray:
        """Convert without recording accesses: as if the array had had this type from the start."""
        return self._view(self.array.astype(dtype), self.addresses)

    def copy(self) -> TracedArray:
        """Copy without recording accesses; the copy keeps the addresses."""
        return self.astype(self.dtype)

    def _view(self, array: np.ndarray, addresses: np.ndarray) -> TracedArray:
        return TracedArray(array, addresses, self.trace, self.name, self.total)


def _record_write(out: Any) -> Any:
    if not isinstance(out, TracedArray):
        return out
    out.trace.record(out.addresses)
    return out.array


def misses(addresses: np.ndarray, lines: int, line: int) -> int:
    """Count the misses of a small, fully associative cache with LRU replacement.

    Args:
        addresses: Integers [accesses] in order, as from `Trace.addresses`.
        lines: Capacity in cache lines.
        line: Elements per line.
    """
    cache: dict[int, None] = {}  # in order of last use
    count = 0
    for tag in (np.asarray(addresses) // line).tolist():
        if tag in cache:
            del cache[tag]  # reinserted below as the most recently used
        else:
            count += 1
            if len(cache) == lines:
                del cache[next(iter(cache))]
        cache[tag] = None
    return count
