"""Writing a result whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from mlhood.errors import OutputError


def write_atomic(path: str | Path, data: bytes) -> Path:
    """Write `data` to `path` such that a reader never finds half of it, and return the path.

    The bytes go to a file beside it first, which then takes its name; what was there stays until then.

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
        _open_to_others(Path(temporary))
        Path(temporary).replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
    return path


def check_output(path: Path) -> None:
    """Say before long work whether its result could be written.

    Raises:
        OutputError: The folder does not exist, or `path` is a folder.
    """
    if path.is_dir():
        raise OutputError("this is a folder, not a file", where=path, todo="add a file name to the path")
    if not path.parent.is_dir():
        raise OutputError(
            "the folder to write into does not exist",
            where=path.parent,
            todo="create it, or choose another path",
        )


def _open_to_others(path: Path) -> None:
    # mkstemp makes files that only their owner may read; a result gets the mode that any new file would.
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _refused(path: Path, error: OSError) -> OutputError:
    return OutputError(
        "the file cannot be written",
        where=path,
        got=error.strerror or str(error),
        todo="free space on the disk, or choose a folder in which you may write",
    )
