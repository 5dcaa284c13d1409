"""Threads for kernels: each takes the next task from an atomic counter in memory until none is left.

A kernel is a native function of one address, that of its argument block (`mlhood.kernels.codegen.arguments`), whose
first words are the counters. The calling thread takes part and returns when all tasks are finished; a helper thread
that wakes up too late finds no task left and touches only the argument block, so nothing waits for it.
Each thread has its own scratch buffers.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np

from mlhood.errors import KernelError

_QUEUE: SimpleQueue[Callable[[], None]] = SimpleQueue()
_HELPERS: list[threading.Thread] = []
_LOCK = threading.Lock()
_SETTING = threading.local()
_EXCLUDED_CPUS: dict[threading.Thread, int] = {}
LINE = 64  # a vector load that crosses two cache lines runs at half speed

_SCRATCH = threading.local()


def threads() -> int:
    """Return the number of threads for kernels: `set_threads`' setting, else `OMP_NUM_THREADS`, else all processors."""
    count = getattr(_SETTING, "count", None)
    if count is not None:
        return count
    variable = os.environ.get("OMP_NUM_THREADS", "")
    return int(variable) if variable.isdecimal() and int(variable) else _processors()


@functools.cache
def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(count: int | None) -> int | None:
    """Set the number of threads for kernels that the calling thread starts; None removes the setting.

    `mlhood.measure.threads` calls it beside its counterparts in torch and Numba.

    Returns:
        The previous setting.

    Raises:
        KernelError: If `count` is not a positive integer.
    """
    before = getattr(_SETTING, "count", None)
    _SETTING.count = None if count is None else resolve_threads(count)
    return before


def resolve_threads(count: int | None) -> int:
    """Return a valid number of threads; None means the default, `threads()`.

    Raises:
        KernelError: If `count` is not a positive integer.
    """
    if count is None:
        return threads()
    if not isinstance(count, int | np.integer) or count < 1:
        raise KernelError("invalid number of threads", expected="1 or more", got=repr(count))
    return int(count)


def launch(kernel: Callable[[int, int], None], arguments: np.ndarray, arrays: Any, count: int) -> None:
    """Run a kernel with `count` threads and wait for it.

    Args:
        kernel: A native function that releases the GIL while it runs.
        arguments: int64, the argument block; its counters are zero.
        arrays: Owners of the memory that the argument block points to.
        count: Number of threads, the calling one included.
    """
    address = arguments.ctypes.data

    def job(_keep_alive: Any = (arguments, arrays)) -> None:
        kernel(address, 0)

    _start_helpers(count - 1)
    _exclude_this_cpu(count - 1)
    for _ in range(count - 1):
        _QUEUE.put(job)
    kernel(address, 1)


def parallel_for(body: Callable[[int, int], None], size: int, count: int) -> None:
    """Call `body(first, stop)` for equal parts of range(size), each in its own thread, and wait for them.

    Args:
        body: Work that releases the GIL.
        size: Number of iterations.
        count: Maximum number of threads.
    """
    count = min(count, size)
    if count <= 1:
        body(0, size)
        return
    bounds = [size * i // count for i in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(body, first, stop) for first, stop in pairwise(bounds)]:
            future.result()


def _exclude_this_cpu(helpers: int) -> None:
    """Keep helpers off the calling thread's processor, where they would wait until the calling thread is done.

    Linux tends to wake a thread on the processor of the thread that wakes it, and migrates it milliseconds later.
    """
    if not helpers or _current_cpu is None:
        return
    this_cpu = _current_cpu()
    for helper in _HELPERS[:helpers]:
        if _EXCLUDED_CPUS.get(helper) == this_cpu or helper.native_id is None:
            continue
        others = os.sched_getaffinity(0) - {this_cpu}
        if others:
            os.sched_setaffinity(helper.native_id, others)
        _EXCLUDED_CPUS[helper] = this_cpu


def _start_helpers(count: int) -> None:
    if len(_HELPERS) >= count:
        return
    with _LOCK:
        while len(_HELPERS) < count:
            _HELPERS.append(threading.Thread(target=_run_jobs, daemon=True, name=f"kernel-{len(_HELPERS) + 1}"))
            _HELPERS[-1].start()


def _run_jobs() -> None:
    while True:
        _QUEUE.get()()


def _reset_after_fork() -> None:
    """Forget the helpers in a forked child, which inherits the list but not the threads."""
    global _QUEUE, _LOCK
    _HELPERS.clear()
    _EXCLUDED_CPUS.clear()
    _QUEUE, _LOCK = SimpleQueue(), threading.Lock()


_current_cpu = getattr(ctypes.CDLL(None), "sched_getcpu", None) if sys.platform == "linux" else None

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def data_address(array: np.ndarray) -> int:
    """Return the address of an array's first element, in a third of the time that `__array_interface__` takes."""
    try:
        buffer: Any = array
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    except (TypeError, ValueError, BufferError):  # read-only, empty, or not contiguous
        return int(array.__array_interface__["data"][0])


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
