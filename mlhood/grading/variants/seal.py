"""The name of an edition in a notebook's metadata: sealed with the seed of the course, so that nobody can forge it.

It is encrypted, too: who knows a variant's word can make its solutions with this package.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

MAX_SEAL = 1000
UNSIGNED = "?"  # stands for an edition whose seal is not of this course; no word of a variant


def seal(seed: int, word: str) -> str:
    """Return the sealed word of an edition: authenticated encryption, the same text each time (AES-SIV, RFC 5297).

    Args:
        seed: Of the course.
        word: Of the variant.
    """
    return base64.urlsafe_b64encode(_cipher(seed).encrypt(word.encode(), None)).decode()


def unseal(seed: int, text: object) -> str | None:
    """Return the word in a seal, or None if it was not sealed with this seed.

    Args:
        seed: Of the course.
        text: Of a notebook that was handed in, so it may be anything.
    """
    from cryptography.exceptions import InvalidTag

    if not isinstance(text, str) or len(text) > MAX_SEAL:
        return None
    try:
        return _cipher(seed).decrypt(base64.urlsafe_b64decode(text.encode("ascii")), None).decode()
    except (InvalidTag, binascii.Error, ValueError):
        return None


def _cipher(seed: int):
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

    return AESSIV(hashlib.sha256(f"edition of the course {seed}".encode()).digest())
