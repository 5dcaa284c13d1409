"""The name of a version in a notebook's metadata: signed with the seed of the course, so that nobody can forge it.

It is encrypted, too: who knows a variant's name can make its solutions with this package.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

MAX_SIGNATURE = 1000
UNSIGNED = "?"  # stands for a version whose signature is not of this course; no name of a variant


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
