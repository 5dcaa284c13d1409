"""Typical wrong solutions of P5, with the checks that each must fail and the message it must get.

Mistakes of one task in different cells share an entry, so that few notebooks suffice. A mistake that costs points of
another is noticed all the same, since an entry loses exactly what its mistakes lose.
"""

from __future__ import annotations

from dataclasses import replace

from tests.grading.projects import p5_wrong_learning, p5_wrong_programs
from tests.grading.projects.examples import Mistake


def packed(mistakes: tuple[Mistake, ...]) -> tuple[Mistake, ...]:
    """Merge each mistake into the first entry of its task that leaves its cells untouched."""
    entries: list[Mistake] = []
    for mistake in mistakes:
        free = (
            index
            for index, entry in enumerate(entries)
            if entry.task == mistake.task and not entry.cells.keys() & mistake.cells
        )
        index = next(free, None)
        if index is None:
            entries.append(replace(mistake, message=_anywhere(mistake.message)))
        else:
            entries[index] = _merged(entries[index], mistake)
    return tuple(entries)


def _merged(entry: Mistake, mistake: Mistake) -> Mistake:
    return Mistake(
        f"{entry.name}; {mistake.name}",
        entry.task,
        entry.cells | mistake.cells,
        (*entry.loses, *mistake.loses),
        entry.message + _anywhere(mistake.message),
    )


def _anywhere(message: str) -> str:
    """A lookahead, so that several messages can be required in any order."""
    return f"(?=(?s:.*)(?:{message}))"


WRONG = packed((*p5_wrong_programs.WRONG, *p5_wrong_learning.WRONG))
