"""How a promise came out, in a line under a table."""

from __future__ import annotations


def verdict(promise: str, held: bool) -> str:
    """A promise, and whether it was held."""
    return f"{promise}: {'held' if held else 'MISSED'}"
