"""Folders, and file names that every operating system accepts."""

from __future__ import annotations

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


def portable_name(text: str) -> str:
    """Return a file name for a text such as a student's id: valid on every system, and unique to this text."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:60].strip(".")
    if name == text and name and not RESERVED.fullmatch(name) and name == name.lower():
        return name
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name or 'student'}-{digest}"
