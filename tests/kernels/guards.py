"""Runs of native calls that notice accesses outside of the operands: guards of NaN around what is read and written."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mlhood.kernels import parallel
from mlhood.kernels.native import NativeCall, run

GUARD = 256  # bytes on either side
CANARY = 0xFF  # NaN as float32 and float64


def guarded(array: np.ndarray, offset: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a buffer of bytes, and a copy of a contiguous array in it, `offset` elements from a multiple of 64."""
    start = GUARD + offset * array.itemsize
    buffer = np.full(start + array.nbytes + GUARD, CANARY, np.uint8)
    inside = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    inside[...] = array
    return buffer, inside


class Guarded:
    """A float32 array between guards, for a test that runs several calls on it.

    Args:
        shape: Its shape.
        data: Its content; NaN by default.
        shift: Where it starts, in elements from a multiple of 64 bytes in its buffer.
    """

    def __init__(self, shape, data=None, shift=0):
        content = np.full(shape, np.nan, np.float32) if data is None else np.broadcast_to(data, shape)
        self.buffer, self.array = guarded(np.ascontiguousarray(content, np.float32), shift)
        self.start = GUARD + shift * self.array.itemsize

    def check(self):
        """Check that nothing was written around the array."""
        around = np.concatenate([self.buffer[: self.start], self.buffer[self.start + self.array.nbytes :]])
        assert (around == CANARY).all(), "wrote outside of an operand"


def run_guarded(call: NativeCall, shape: Sequence[int], dtype: Any = np.float32, **inputs: np.ndarray) -> np.ndarray:
    """Run a call with 1 and with 2 threads, and return "out", of the given shape.

    It must be the same bits for both numbers of threads and for another alignment, and nothing outside may be written.
    """
    results = []
    for threads, offset in ((1, 0), (2, 1)):
        arrays = {name: guarded(np.ascontiguousarray(x), offset)[1] for name, x in inputs.items()}
        empty = np.full(math.prod(shape) * np.dtype(dtype).itemsize, CANARY, np.uint8).view(dtype).reshape(shape)
        buffer, out = guarded(empty, offset)
        run(call, threads, **arrays, out=out)
        outside = np.concatenate([buffer[: GUARD + offset * out.itemsize], buffer[buffer.size - GUARD :]])
        assert (outside == CANARY).all(), "wrote outside of its result"
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, inputs[name], err_msg="changed its input")
        results.append(out)
    assert results[0].tobytes() == results[1].tobytes(), "the result depends on the number of threads or alignment"
    return results[0].copy()


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Run kernels that the calling thread starts within the block with `count` threads."""
    before = parallel.set_threads(count)
    try:
        yield
    finally:
        parallel.set_threads(before)
