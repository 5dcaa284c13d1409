"""Atomic writes of result files."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from mlhood.errors import OutputError


def write_atomic(path: str | Path, data: bytes) -> Path:
    """Write `data` to `path` atomically, and return the path.

    The bytes are written to a temporary file in the same folder, which then replaces `path`; a reader sees either the
    old or the new content.

    Raises:
        OutputError: The folder is missing, read-only or full, or `path` is a folder.
    """
    path = Path(path)
    check_output(path)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates files readable by their owner only; a result gets the mode of any new file
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        raise OutputError(
            "the file cannot be written",
            where=path,
            got=error.strerror or str(error),
            todo="free space on the disk, or choose a folder with write permission",
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
    return path


def check_output(path: Path) -> None:
    """Check, before long work, that its result can be written.

    Raises:
        OutputError: The folder does not exist, or `path` is a folder.
    """
    if path.is_dir():
        raise OutputError("this is a folder, not a file", where=path, todo="add a file name to the path")
    if not path.parent.is_dir():
        raise OutputError(
            "the folder to write into does not exist", where=path.parent, todo="create it, or choose another path"
        )
