"""Whether a measurement keeps a promise, in a line under a table."""

from __future__ import annotations


def verdict(promise: str, held: bool) -> str:
    """Return a promise, and whether it was held."""
    return f"{promise}: {'held' if held else 'MISSED'}"
