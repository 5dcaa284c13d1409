"""Folders, and file names that every operating system accepts."""

from __future__ import annotations

import difflib
import hashlib
import re
from pathlib import Path

from mlhood.errors import OutputError

RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # device names of Windows


def make_folder(folder: Path) -> None:
    """Create a folder and its parents.

    Raises:
        OutputError: It cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            "the folder cannot be created",
            where=folder,
            got=error.strerror or str(error),
            todo="choose another folder with --to",
        ) from None


def did_you_mean(path: Path) -> str:
    """Return a hint, such as `did you mean P3.ipynb?`: the files beside it whose names are most like that of `path`."""
    folder = path.parent
    names = {other.name.lower(): other.name for other in folder.iterdir()} if folder.is_dir() else {}
    near = difflib.get_close_matches(path.name.lower(), names, n=2)
    return f"did you mean {' or '.join(names[name] for name in near)}?" if near else ""


def portable_name(text: str) -> str:
    """Return a file name for a text such as a student's id: valid on every system, and unique to this text."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:60].strip(".")
    if name == text and name and not RESERVED.fullmatch(name) and name == name.lower():
        return name
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name or 'student'}-{digest}"
