"""Threads for kernels: each takes the next task from a counter in memory until none is left.

A kernel is a native function of one address, that of its plan: 64-bit integers, the first three of which belong to
this module. The caller takes part and returns when all tasks are finished; a helper that wakes up too late finds
nothing left to do and touches only the plan, so nobody waits for it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np

from mlhood.errors import KernelError

_QUEUE: SimpleQueue[Callable[[], None]] = SimpleQueue()
_HELPERS: list[threading.Thread] = []
_LOCK = threading.Lock()
_CHOSEN = threading.local()
_AVOIDS: dict[threading.Thread, int] = {}


def threads() -> int:
    """Return how many threads kernels take: what `use_threads` says, `OMP_NUM_THREADS`, or all processors."""
    chosen = getattr(_CHOSEN, "count", None)
    if chosen is not None:
        return chosen
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdecimal() and int(said) else _processors()


@functools.cache
def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let kernels that are called in the block, from this thread, take `count` threads.

    Raises:
        KernelError: If `count` is not a positive integer.
    """
    before = set_threads(checked(count))
    try:
        yield
    finally:
        set_threads(before)


def set_threads(count: int | None) -> int | None:
    """Let kernels that this thread calls from now on take `count` threads, and return what has been set before.

    `mlhood.measure.threads` calls it as it calls its like in torch and Numba. None: nothing is set.

    Raises:
        KernelError: If `count` is not a positive integer.
    """
    before = getattr(_CHOSEN, "count", None)
    _CHOSEN.count = None if count is None else checked(count)
    return before


def checked(count: int | None) -> int:
    """Return a number of threads; None means what `threads` says."""
    if count is None:
        return threads()
    if not isinstance(count, int | np.integer) or count < 1:
        raise KernelError("a kernel cannot take that many threads", expected="1 or more", got=repr(count))
    return int(count)


def run(kernel: Callable[[int, int], None], plan: np.ndarray, keep: Any, count: int) -> None:
    """Run a kernel over its plan with `count` threads.

    Args:
        kernel: A native function that releases the interpreter's lock while it runs.
        plan: int64; its first words are `COUNTERS`, all zero.
        keep: What the addresses in the plan belong to.
        count: Threads, the caller's among them.
    """
    address = plan.ctypes.data

    def job(kept: Any = (plan, keep)) -> None:
        kernel(address, 0)

    _need(count - 1)
    _keep_away(count - 1)
    for _ in range(count - 1):
        _QUEUE.put(job)
    kernel(address, 1)


def share(part: Callable[[int, int], None], size: int, count: int) -> None:
    """Call `part(first, stop)` for equal parts of 0..size, each in a thread of its own, and wait for them.

    Args:
        part: Work that releases the interpreter's lock.
        size: How much there is.
        count: Threads at most.
    """
    count = min(count, size)
    if count <= 1:
        part(0, size)
        return
    ends = [size * number // count for number in range(count + 1)]
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(part, first, stop) for first, stop in pairwise(ends)]:
            done.result()


def _keep_away(helpers: int) -> None:
    """Let no helper wake up on the caller's processor, where it would wait until the caller is done.

    Linux likes to wake a thread where the one that wakes it runs, and moves it milliseconds later.
    """
    if not helpers or _processor is None:
        return
    here = _processor()
    for helper in _HELPERS[:helpers]:
        if _AVOIDS.get(helper) == here or helper.native_id is None:
            continue
        elsewhere = os.sched_getaffinity(0) - {here}
        if elsewhere:
            os.sched_setaffinity(helper.native_id, elsewhere)
        _AVOIDS[helper] = here


def _find_processor() -> Callable[[], int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


def _need(helpers: int) -> None:
    if len(_HELPERS) >= helpers:
        return
    with _LOCK:
        while len(_HELPERS) < helpers:
            _HELPERS.append(threading.Thread(target=_help, daemon=True, name=f"kernel-{len(_HELPERS) + 1}"))
            _HELPERS[-1].start()


def _help() -> None:
    while True:
        _QUEUE.get()()


def _forget() -> None:
    """After a fork the child has the list of helpers but not the helpers."""
    global _QUEUE, _LOCK
    _HELPERS.clear()
    _AVOIDS.clear()
    _QUEUE, _LOCK = SimpleQueue(), threading.Lock()


_processor = _find_processor()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
