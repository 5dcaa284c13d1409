"""Typical wrong solutions of P5, each with what it must cost and what must be said.

Faults of one task that lie in cells of their own share an entry, so that a notebook holds as many as it can: one that
costs the points of another shows all the same.
"""

from __future__ import annotations

from tests.grading.projects import p5_wrong_learning, p5_wrong_programs
from tests.grading.projects.gallery import Wrong


def packed(faults: tuple[Wrong, ...]) -> tuple[Wrong, ...]:
    """Put each fault to the first entry of its task that has none in its cells."""
    entries: list[Wrong] = []
    for fault in faults:
        free = (n for n, one in enumerate(entries) if one.task == fault.task and not one.cells.keys() & fault.cells)
        place = next(free, None)
        if place is None:
            entries.append(Wrong(fault.name, fault.task, fault.cells, fault.loses, _anywhere(fault.says)))
        else:
            entries[place] = _together(entries[place], fault)
    return tuple(entries)


def _together(one: Wrong, other: Wrong) -> Wrong:
    names, loses = f"{one.name}; {other.name}", (*one.loses, *other.loses)
    return Wrong(names, one.task, one.cells | other.cells, loses, one.says + _anywhere(other.says))


def _anywhere(says: str) -> str:
    """An expression that moves nowhere, so that several can be asked for, in whatever order they are said."""
    return f"(?=(?s:.*)(?:{says}))"


WRONG = packed((*p5_wrong_programs.WRONG, *p5_wrong_learning.WRONG))
