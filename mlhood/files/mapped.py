"""Large arrays in a file that is mapped into memory: their pages count as memory only while they are used.

The file has no name, so no other process sees it. The file that a model came from could be mapped without a copy, but
who shortens or overwrites it would end the process, or change the weights of a model that is compiled already.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

SMALLEST = 2**18  # bytes: a smaller array stays where it is
_ALIGNMENT = 64  # a cache line


@dataclass(frozen=True)
class _Position:
    """Where an array lies in the file."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]


def map_arrays(arrays: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Return arrays, the large ones of them as read-only views of one mapped file.

    Args:
        arrays: Each is dropped before the next one is taken, so that those of a generator are never in memory all at
            once.

    Returns:
        The arrays; those for which the disk has no room as they were.
    """
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
        except OSError:
            return list(arrays)
        entries = [_append(file, array) for array in arrays]
        if not any(isinstance(entry, _Position) for entry in entries):
            return [entry for entry in entries if isinstance(entry, np.ndarray)]
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return [_view(mapping, entry) if isinstance(entry, _Position) else entry for entry in entries]


def _append(file: IO[bytes], array: np.ndarray) -> np.ndarray | _Position:
    """Write an array at the end of a file, and return its position; return the array if it is not to be there."""
    if array.nbytes < SMALLEST or array.dtype.kind not in "fiu" or not array.dtype.isnative:
        return array
    end = file.seek(0, 2)
    try:
        file.write(bytes(-end % _ALIGNMENT))
        offset = file.tell()
        file.write(np.ascontiguousarray(array).data)
        file.flush()  # pages of the mapping must have room on the disk
    except OSError:
        return array
    return _Position(offset, array.dtype, array.shape)


def _view(mapping: mmap.mmap, position: _Position) -> np.ndarray:
    count = int(np.prod(position.shape))
    return np.frombuffer(mapping, position.dtype, count, position.offset).reshape(position.shape)


def release_pages(array: np.ndarray) -> None:
    """Tell the system that the memory of a mapped array is not needed now: it is read again when it is.

    Args:
        array: A view of a mapping that nobody writes to; nothing happens for another one.
    """
    mapping = _mapping(array)
    if mapping is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    base = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    low, high = np.lib.array_utils.byte_bounds(array)
    # whole pages: what the first and the last one share with other arrays is read again, too
    start = (low - base) // mmap.PAGESIZE * mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, start, min(high - base, len(mapping)) - start)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapping that an array is a view of, if it cannot be written."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) and memoryview(base).readonly else None
