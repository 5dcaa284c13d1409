"""Small text files that someone names on the command line."""

from __future__ import annotations

import os
from pathlib import Path

MAX_TEXT = 1 << 20


def read_short_text(file: Path) -> str:
    """Return the text of a file of at most 1 MiB.

    Raises:
        OSError: It cannot be read.
        ValueError: It is larger, or no text in UTF-8.
    """
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size > MAX_TEXT:
            raise ValueError(f"it is larger than {MAX_TEXT >> 20} MiB")
        return stream.read(MAX_TEXT).decode("utf-8")
