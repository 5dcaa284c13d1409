"""Locks between processes: whose turn it is to measure, and who may write a gradebook.

A lock lies on an open file, so the system takes it from a process that dies, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_SECONDS = 0.1


@contextlib.contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock on this file, and hold it."""
    with _opened(path) as handle:
        while not _locked(handle):
            time.sleep(POLL_SECONDS)
        yield


@contextlib.contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Hold the lock on this file if nobody else does; whether it is held."""
    with _opened(path) as handle:
        yield _locked(handle)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # not inherited by kernels, which would keep it locked
    try:
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
