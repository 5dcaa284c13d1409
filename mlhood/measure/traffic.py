"""Memory traffic, counted: arrays that know how many of their elements have been read and written."""

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
