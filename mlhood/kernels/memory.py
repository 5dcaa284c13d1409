"""Memory for kernels: arrays aligned to cache lines, and scratch buffers per thread."""

from __future__ import annotations

import threading

import numpy as np

LINE = 64  # a vector load that crosses two cache lines runs at half speed

_SCRATCH = threading.local()


def aligned(count: int) -> np.ndarray:
    """Return `count` uninitialized float32, aligned to a cache line."""
    raw = np.empty(count * 4 + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + count * 4].view(np.float32)


def scratch(name: str, count: int) -> np.ndarray:
    """Return at least `count` float32 that the calling thread may use until it requests the same name again.

    Reusing a buffer avoids a page fault for every 4 KiB of fresh memory, which costs more than some kernels take.
    """
    buffer = getattr(_SCRATCH, name, None)
    if buffer is None or buffer.size < count:
        buffer = aligned(count)
        setattr(_SCRATCH, name, buffer)
    return buffer
