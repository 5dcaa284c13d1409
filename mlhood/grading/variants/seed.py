"""The seed of a course: what students must not know, in a file of the instructor.

The inputs of the checks are drawn from it, and the name of a version is signed with it in a notebook's metadata, so
that nobody can forge it. It is encrypted, too: who knows a variant's name can make its solutions with this package.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.paths import read_text

MAX_SIGNATURE = 1000
UNSIGNED = "?"  # stands for a version whose signature is not of this course; no name of a variant


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


def sign(seed: int, name: str) -> str:
    """Return the signed name of a version: authenticated encryption, the same text each time (AES-SIV, RFC 5297).

    Args:
        seed: Of the course.
        name: Of the variant.
    """
    return base64.urlsafe_b64encode(_cipher(seed).encrypt(name.encode(), None)).decode()


def verify(seed: int, text: object) -> str | None:
    """Return the name in a signature, or None if it was not signed with this seed.

    Args:
        seed: Of the course.
        text: From a submitted notebook, so it may be anything.
    """
    from cryptography.exceptions import InvalidTag

    if not isinstance(text, str) or len(text) > MAX_SIGNATURE:
        return None
    try:
        return _cipher(seed).decrypt(base64.urlsafe_b64decode(text.encode("ascii")), None).decode()
    except (InvalidTag, binascii.Error, ValueError):
        return None


def _cipher(seed: int):
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(hashlib.sha256(f"edition of the course {seed}".encode()).digest())
