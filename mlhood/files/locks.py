"""Locks between processes: whose turn it is to measure, and who may write a gradebook.

A lock lies on an open file, so the system takes it from a process that dies, however it dies.
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
# not what `TMPDIR` says: two calls with different ones are on the same machine
SHARED = Path("/tmp")  # noqa: S108 (the folder in it is looked at)
OTHERS = 0o077


def machine_file() -> Path:
    """The file whose lock says whose turn it is to measure on this machine, among all that this user has started.

    Its folder belongs to this user and is closed to others, who can neither hold the lock nor lead it elsewhere.

    Raises:
        OutputError: What stands at its place is no such folder, or there can be none.
    """
    folder = SHARED / f"mlhood-{os.geteuid()}" if hasattr(os, "geteuid") else Path(tempfile.gettempdir(), "mlhood")
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise _no_turns(folder, error.strerror or str(error)) from None
    if not stat.S_ISDIR(status.st_mode):
        raise _no_turns(folder, "a link or a file")
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & OTHERS):
        raise _no_turns(folder, f"a folder of user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}")
    return folder / "turn"


def _no_turns(folder: Path, got: str) -> OutputError:
    return OutputError(
        "submissions cannot take turns to measure on this machine",
        where=folder,
        expected="a folder that is yours and closed to others, or nothing yet",
        got=got,
        todo="remove it, or ask whose it is to do so",
    )


@contextlib.contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock on this file, and hold it."""
    while True:
        with _opened(path) as handle:
            if _locked(handle) and _stands_at(path, handle):
                os.utime(path)  # what tidies a folder of temporary files goes by age
                yield
                return
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Hold the lock on this file if nobody else does; whether it is held."""
    with _opened(path) as handle:
        yield _locked(handle)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    # not inherited by kernels, which would keep it locked
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
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


def _stands_at(path: Path, handle: int) -> bool:
    """Whether the open file is still the one of that name: what has been removed keeps nobody else away."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.lstat(), os.fstat(handle))
    return False
