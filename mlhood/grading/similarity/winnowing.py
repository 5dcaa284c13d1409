"""Winnowing: a few fingerprints of a token sequence, at least one of which is shared where sequences share a passage.

S. Schleimer, D. Wilkerson, A. Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003,
section 3.1: hash every K consecutive tokens (a K-gram); of every WINDOW consecutive hashes keep the minimum, the
rightmost one of several. A common passage of K + WINDOW - 1 tokens is always found, one shorter than K never.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from mlhood.grading.similarity.syntax_tokens import SyntaxToken, syntax_tokens

K = 12
WINDOW = 6

# fingerprint -> lines that its tokens are on
Fingerprints = dict[int, frozenset[int]]


def fingerprints(source: str) -> Fingerprints:
    """Return the fingerprints of a program, with the lines of each."""
    return winnow(syntax_tokens(source))


def winnow(tokens: Sequence[SyntaxToken]) -> Fingerprints:
    """Return the fingerprints of a token sequence, with the lines of each; one shorter than K has none."""
    kinds = [token.kind for token in tokens]
    hashes = [_hash(kinds[i : i + K]) for i in range(len(tokens) - K + 1)]
    selected: dict[int, set[int]] = {}
    for start in range(max(len(hashes) - WINDOW + 1, min(len(hashes), 1))):
        window = range(start, min(start + WINDOW, len(hashes)))
        position = min(window, key=lambda i: (hashes[i], -i))
        selected.setdefault(hashes[position], set()).update(token.line for token in tokens[position : position + K])
    return {fingerprint: frozenset(lines) for fingerprint, lines in selected.items()}


def _hash(kinds: Sequence[str]) -> int:
    text = " ".join(kinds)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
