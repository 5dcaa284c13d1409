"""The file whose lock serialises time measurements on this machine."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from mlhood.errors import OutputError

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
