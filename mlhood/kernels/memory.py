"""Memory for kernels: arrays that begin at a cache line, and scratch that a thread keeps."""

from __future__ import annotations

import threading

import numpy as np

LINE = 64  # a vector that crosses two cache lines is loaded at half speed

_SCRATCH = threading.local()


def aligned(count: int) -> np.ndarray:
    """Return `count` float32, not initialised, that begin at a cache line."""
    raw = np.empty(count * 4 + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + count * 4].view(np.float32)


def scratch(name: str, count: int) -> np.ndarray:
    """Return at least `count` float32 that this thread may use until it asks for the same name again.

    Fresh memory costs a page fault for every 4 KiB, more than some kernels take.
    """
    kept = getattr(_SCRATCH, name, None)
    if kept is None or kept.size < count:
        kept = aligned(count)
        setattr(_SCRATCH, name, kept)
    return kept
