"""Small text files that a user names: a secret, a policy."""

from __future__ import annotations

import os
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.paths import did_you_mean

MAX_BYTES = 1 << 20


def read_text(file: Path) -> str:
    """Return the text of a file.

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
