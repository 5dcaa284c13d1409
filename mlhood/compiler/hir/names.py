"""Names that have to be different."""

from __future__ import annotations


def unique_name(name: str, taken: set[str]) -> str:
    """Return a name, with the lowest number behind it that makes it one not taken yet, and add it to those."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
