"""What of this package the process of an untrusted notebook may read: all of it except `grading`, and of that VISIBLE.

So no check, reference or solution is there to be read or called. What a request needs of them comes with it, as text
(`rpc.sources`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

GRADING = "grading"
VISIBLE = (
    "__init__.py",
    *("rpc/__init__.py", "rpc/cell_runner.py", "rpc/pipes.py", "rpc/server.py", "rpc/codec.py", "rpc/guard.py"),
    *("sandbox/__init__.py", "sandbox/launcher.py"),
)
"""The kernel's side of remote calls, and the first program in a sandbox."""
LIBRARY_FOLDERS = {"site-packages", "dist-packages"}
FOR_OWNER_ONLY = stat.S_IRWXU


def package() -> Path:
    """Return the folder of this package."""
    return Path(__file__).resolve().parents[2]


def checkout() -> Path | None:
    """Return the folder around this package with the course's tests and notebooks; None if it is installed."""
    folder = package().parent
    return None if folder.name in LIBRARY_FOLDERS else folder


def hidden_folders(bound: Iterable[Path]) -> list[Path]:
    """Return `grading` of this package and of every other copy in the library folders of `bound`."""
    libraries = [path for path in bound if path.name in LIBRARY_FOLDERS]
    libraries += [library for path in bound for library in path.glob("lib*/python3*/*-packages")]
    copies = [library.resolve() / package().name / GRADING for library in libraries]
    return list(dict.fromkeys([package() / GRADING, *(copy for copy in copies if copy.is_dir())]))


def close_to_others() -> str:
    """Take away all other users' right to read what is not visible; return why that is not possible, if so.

    For processes without a sandbox: the files stay closed, as long as they exist.
    """
    try:
        for folder in hidden_folders([Path(sys.prefix), Path(sys.base_prefix)]):
            for path in _closed(folder):
                path.chmod(path.stat().st_mode & FOR_OWNER_ONLY)
    except OSError as error:
        return f"{error.filename} cannot be closed to others ({error.strerror})"
    return ""


def _closed(folder: Path) -> Iterator[Path]:
    """Yield the files and folders that are not visible; what is in such a folder is closed with it."""
    visible = {folder / name for name in VISIBLE}
    for name, folders, files in os.walk(folder):
        needed = [part for part in folders if any(path.is_relative_to(Path(name, part)) for path in visible)]
        yield from (Path(name, part) for part in folders if part not in needed)
        yield from (path for part in files if (path := Path(name, part)) not in visible)
        folders[:] = needed
