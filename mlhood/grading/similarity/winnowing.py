"""Winnowing: few fingerprints of a sequence, of which two that share a passage share at least one.

S. Schleimer, D. Wilkerson, A. Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003,
section 3.1: hash every K tokens in a row, and of every WINDOW hashes in a row keep the smallest, the last one where
several are. A passage of K + WINDOW - 1 tokens that two have in common is found, one shorter than K never is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mlhood.grading.similarity.syntax_tokens import Token, shape

K = 12
WINDOW = 6

Fingerprints = dict[int, frozenset[int]]


def fingerprints(source: str) -> Fingerprints:
    """The fingerprints of a program, and the lines from which each comes."""
    return winnowed(shape(source))


def winnowed(tokens: Sequence[Token]) -> Fingerprints:
    """The fingerprints of a shape, and the lines from which each comes; one shorter than K has none."""
    hashes = [_hash(tokens[at : at + K]) for at in range(len(tokens) - K + 1)]
    found: Fingerprints = {}
    for start in range(max(len(hashes) - WINDOW + 1, min(len(hashes), 1))):
        window = range(start, min(start + WINDOW, len(hashes)))
        at = min(window, key=lambda place: (hashes[place], -place))
        lines = frozenset(token.line for token in tokens[at : at + K])
        found[hashes[at]] = found.get(hashes[at], frozenset()) | lines
    return found


def _hash(tokens: Sequence[Token]) -> int:
    text = " ".join(token.kind for token in tokens)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
