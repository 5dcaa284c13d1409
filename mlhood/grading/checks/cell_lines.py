"""Where an error happened: the cell and the line, found in the sources that were run.

A student's process only claims that a line of a number raised the error. A claim is shown as a place if a cell that was
run has that very line at that number, and in the words of that cell; any other is no place.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlhood.grading.checks.expect import single_line

MAX_LINE = 500  # characters that are compared
MAX_SHOWN = 100  # characters

# a claim: the number of a line from 1, and its text
Claim = tuple[int, str]


class CellLines:
    """The lines of the cells that were run so far; of equal lines at the same number in two cells the later one."""

    def __init__(self) -> None:
        self._cells: dict[Claim, str] = {}

    def add(self, source: str, name: str) -> None:
        """Add a cell that is run now; `name` is how messages call it, such as `the solution cell of P3.1`."""
        for number, line in enumerate(source.split("\n"), start=1):
            if line.strip():
                self._cells[number, line.strip()[:MAX_LINE]] = name

    def find(self, claims: Iterable[Claim]) -> str:
        """Return the place of the last claim that is true, in words, or nothing."""
        for number, line in reversed(list(claims)):
            text = line.strip()[:MAX_LINE]
            if name := self._cells.get((number, text)):
                shown = single_line(text)
                return f"in line {number} of {name}: `{shown[:MAX_SHOWN]}{'…' if len(shown) > MAX_SHOWN else ''}`"
        return ""
