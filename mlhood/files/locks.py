"""Locks between processes: who may measure time on this machine, and who may write a gradebook.

The lock is on an open file, so the operating system releases it when the process that holds it dies, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mlhood.errors import OutputError

POLL_SECONDS = 0.1
# not `TMPDIR`: two calls that set it differently are still on the same machine
SHARED = Path("/tmp")  # noqa: S108 (the owner and mode of our folder in it are verified)
OTHERS = 0o077


def machine_lock_file() -> Path:
    """Return the file whose lock serialises time measurements of all processes of this user on this machine.

    Its folder belongs to this user and is closed to others, who can neither hold the lock nor redirect it.

    Raises:
        OutputError: The folder cannot be created, or is not a folder that belongs to this user alone.
    """
    folder = SHARED / f"mlhood-{os.geteuid()}" if hasattr(os, "geteuid") else Path(tempfile.gettempdir(), "mlhood")
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from None
    if not stat.S_ISDIR(status.st_mode):
        raise _unusable(folder, "a link or a file")
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & OTHERS):
        raise _unusable(folder, f"a folder of user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}")
    return folder / "timing.lock"


def _unusable(folder: Path, got: str) -> OutputError:
    return OutputError(
        "the lock for time measurements cannot be created on this machine",
        where=folder,
        expected="a folder that is yours and closed to others, or no such folder yet",
        got=got,
        todo="remove it, or ask its owner to remove it",
    )


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[None]:
    """Wait for the exclusive lock on this file, and hold it."""
    while True:
        with _open(path) as handle:
            if _try_lock(handle) and _is_current(path, handle):
                os.utime(path)  # programs that clean up temporary folders go by the time of last use
                yield
                return
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the exclusive lock on this file if it is free; yield whether it is held."""
    with _open(path) as handle:
        yield _try_lock(handle)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    # not inherited by child processes such as kernels, which would keep it locked
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
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


def _is_current(path: Path, handle: int) -> bool:
    """Return whether the open file still has this name: the lock on a file that was removed excludes nobody."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(handle))
    return False
