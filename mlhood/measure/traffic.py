"""Memory traffic of Python code: arrays that count or trace the accesses to their elements, and an LRU cache model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

states: dict[int, Any] = {}
"""What subclasses of `InstrumentedArray` know of an array, by its identity."""


class InstrumentedArray:
    """Base of arrays that observe accesses; asking for its shape, type or size is none.

    An instance holds no data: its state is in this module, so that a function which is given the array gets at the
    elements, and at the record of their accesses, by observed accesses alone.
    """

    __slots__ = ("__weakref__",)

    def __init__(self, state: Any) -> None:
        states[id(self)] = state

    def __del__(self) -> None:
        states.pop(id(self), None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return states[id(self)].array.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        return states[id(self)].array.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return states[id(self)].array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return states[id(self)].array.size

    def __len__(self) -> int:
        return len(states[id(self)].array)


@dataclass
class _Counts:
    array: np.ndarray
    reads: int = 0
    writes: int = 0


class Counted(InstrumentedArray):
    """An array that counts how many elements are read and written.

    Args:
        array: The data; not copied.
    """

    __slots__ = ()

    def __init__(self, array: np.ndarray) -> None:
        super().__init__(_Counts(array))

    @property
    def reads(self) -> int:
        """Number of elements read so far."""
        return states[id(self)].reads

    @property
    def writes(self) -> int:
        """Number of elements written so far."""
        return states[id(self)].writes

    def __getitem__(self, index: Any) -> Any:
        """Read elements; a slice reads all of its elements, and returns a read-only copy."""
        state = states[id(self)]
        value = state.array[index]
        state.reads += np.size(value)
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False  # a write to the copy would be lost, and not be counted
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        state = states[id(self)]
        state.writes += np.size(state.array[index])
        state.array[index] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read the whole array, as every NumPy function does with its arguments."""
        state = states[id(self)]
        state.reads += state.array.size
        return state.array.astype(dtype or state.array.dtype)

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

    Attributes:
        whole: Names of the arrays that NumPy has read at once.
        ranges: First and last address of each array, by name.
    """

    ALIGNMENT = 64

    def __init__(self) -> None:
        self.whole: set[str] = set()
        self.ranges: dict[str, tuple[int, int]] = {}
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
        self.ranges[name] = first, first + array.size - 1
        addresses = np.arange(first, first + array.size).reshape(array.shape)
        return TracedArray(_Part(array, addresses, self, name, array.size))

    def record(self, addresses: np.ndarray) -> None:
        """Record reads or writes of these addresses, in order."""
        self._accesses += addresses.ravel().tolist()

    def addresses(self) -> np.ndarray:
        """Return all accesses so far: int32 [accesses]."""
        return np.array(self._accesses, np.int32)


@dataclass(frozen=True)
class _Part:
    """An allocated array, or a part of it.

    Args:
        array: The data.
        addresses: int64, of the array's shape: address of each element.
        trace: The trace.
        name: Name in reports.
        total: Number of elements of the allocated array.
    """

    array: np.ndarray
    addresses: np.ndarray
    trace: Trace
    name: str
    total: int


class TracedArray(InstrumentedArray, NDArrayOperatorsMixin):
    """An array whose accesses are recorded in a trace, which allocates it.

    A slice of it is a view, as in NumPy, and accesses nothing until its elements are needed: individually in loops, or
    all of them in memory order where NumPy computes with them. The access order inside a library is unknown, so a
    computation with the whole array at once is also recorded in `Trace.whole`. Transposed and converted arrays keep
    their addresses.
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        """Read one element, or return a view."""
        part = states[id(self)]
        value = part.array[index]
        if isinstance(value, np.ndarray):
            return self._view(value, part.addresses[index])
        part.trace.record(part.addresses[index])
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        part = states[id(self)]
        part.trace.record(part.addresses[index])
        part.array[index] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Read all elements, as every NumPy function does with its arguments."""
        part = states[id(self)]
        part.trace.record(part.addresses)
        if part.array.size == part.total > 1:
            part.trace.whole.add(part.name)
        return part.array.astype(dtype or part.array.dtype)

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
        part = states[id(self)]
        return self._view(part.array.T, part.addresses.T)

    def astype(self, dtype: Any) -> TracedArray:
        """Convert without recording accesses: as if the array had had this type from the start."""
        part = states[id(self)]
        return self._view(part.array.astype(dtype), part.addresses)

    def copy(self) -> TracedArray:
        """Copy without recording accesses; the copy keeps the addresses."""
        return self.astype(self.dtype)

    def _view(self, array: np.ndarray, addresses: np.ndarray) -> TracedArray:
        return TracedArray(replace(states[id(self)], array=array, addresses=addresses))


def _record_write(out: Any) -> Any:
    if not isinstance(out, TracedArray):
        return out
    part = states[id(out)]
    part.trace.record(part.addresses)
    return part.array


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
