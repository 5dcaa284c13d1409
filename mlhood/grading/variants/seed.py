"""The seed of a course: what students must not know, in a file of the instructor.

The inputs of the checks are drawn from it, and the names of versions are signed with it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.paths import read_text


def read_seed(file: Path) -> int:
    """Return the seed in a file, 63 bits of a hash of its text.

    Raises:
        GradingError: The file cannot be read, or is empty.
    """
    text = read_text(file).strip()
    if not text:
        raise GradingError(
            "the seed file is empty",
            where=file,
            expected="some text that nobody can guess",
            todo="write one: python3 -c 'import secrets; print(secrets.token_hex())' > seed",
        )
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def make_seed_file(file: Path) -> Path:
    """Write a new seed that only its owner can read, unless the file exists; return its path.

    Raises:
        OSError: It cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return file
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(secrets.token_hex() + "\n")
    return file
