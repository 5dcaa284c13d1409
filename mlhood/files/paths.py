"""What a user names: folders, file names that every system accepts, small text files, and files of a wrong format."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from mlhood.errors import GradingError, OutputError, nearest

RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # device names of Windows
MAX_BYTES = 1 << 20  # of a text file
# the format of a file by its first bytes, for messages about a file that was passed by mistake;
# https://en.wikipedia.org/wiki/List_of_file_signatures, the last two are those of text
SIGNATURES = {
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"%PDF": "PDF",
    b"PK\x03\x04": "ZIP",
    b"\x1f\x8b": "gzip",
    b"\x89HDF": "HDF5",
    b"\x80\x02": "pickle",
    b"\x80\x04": "pickle",
    b"\x80\x05": "pickle",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"<": "markup",
    b"{": "JSON",
}


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
            todo="choose another folder, or free space in this one",
        ) from None


def did_you_mean(path: str | Path) -> str | None:
    """Return a hint, such as `did you mean P3.ipynb?`: the files beside it whose names are most like that of `path`.

    A suffix in common does not make two names alike. None if the path exists, or no name is like it.
    """
    path = Path(path)
    if path.exists() or not path.parent.is_dir():
        return None
    return nearest(path.name, [other.name for other in path.parent.iterdir() if _alike(path, other)])


def _alike(path: Path, other: Path) -> bool:
    return path.suffix.lower() != other.suffix.lower() or nearest(path.stem, [other.stem]) is not None


def portable_name(text: str) -> str:
    """Return a file name for a text such as a student's id: valid on every system, and unique to this text."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:60].strip(".").lstrip("-")  # no command takes it for an option
    if name == text and name and not RESERVED.fullmatch(name) and name == name.lower():
        return name
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name or 'student'}-{digest}"


def read_text(file: Path) -> str:
    """Return the text of a small file, such as a secret or a policy.

    Raises:
        GradingError: It is missing, too large, or not UTF-8.
    """
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
            return stream.read(MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise GradingError(
            "a file cannot be read", where=file, expected="a text file", got=str(error), todo=did_you_mean(file)
        ) from None


def file_format(data: bytes) -> str | None:
    """Return the name of the format in `SIGNATURES` that a file's first bytes have, or None."""
    return next((name for start, name in SIGNATURES.items() if data.startswith(start)), None)
