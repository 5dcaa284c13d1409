"""Entries of wrong example solutions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[3]
CELL = re.compile(r"^# %% (\S+)\n(.*?)(?=^# %%|\Z)", re.MULTILINE | re.DOTALL)
PART = re.compile(r"<<(\w+)(?::(.*?))?>>", re.DOTALL)
Row = tuple[str, dict[str, str], str | tuple[str, ...], str]


@dataclass(frozen=True)
class Mistake:
    """A wrong solution of one task.

    Attributes:
        cells: New source by cell id.
        loses: Names of the checks that must fail; all others of the notebook must pass.
        message: A regular expression that must match somewhere in the messages of the failed checks.
    """

    name: str
    task: str
    cells: dict[str, str]
    loses: tuple[str, ...]
    message: str


class Snippet:
    """Source of a few cells, with named parts that can be replaced: `snippet(part="...")` returns the cells by id.

    Args:
        text: A line `# %% ID` before each cell. A part is written <<name: source>>, and <<name>> where it stands again.
    """

    def __init__(self, text: str) -> None:
        self._cells = {cell: source.strip("\n") + "\n" for cell, source in CELL.findall(text)}
        found = (PART.finditer(source) for source in self._cells.values())
        self._parts = {part[1]: part[2] for parts in found for part in parts if part[2] is not None}

    def __call__(self, *values: str, **parts: str) -> dict[str, str]:
        """Return the cells with other parts: the first ones in the order of the text, or any by name."""
        parts |= dict(zip(self._parts, values, strict=False))
        if unknown := parts.keys() - self._parts.keys():
            raise TypeError(f"no parts of this snippet: {unknown}")
        return {cell: PART.sub(lambda part: self._source(part, parts), text) for cell, text in self._cells.items()}

    def _source(self, part: re.Match[str], parts: dict[str, str]) -> str:
        """Return the source of a part; in a function, lines after its first are indented like the function."""
        if part[1] not in parts:
            return self._parts[part[1]].removeprefix(" ")
        statement = re.findall(r"^\S.*", part.string[: part.start()], re.MULTILINE)[-1]
        return parts[part[1]].replace("\n", "\n    " if statement.startswith("def ") else "\n")


def mistakes(task: str, *rows: Row) -> tuple[Mistake, ...]:
    """Wrong solutions of one task, each as (name, cells, the check or checks that it loses, message)."""
    return tuple(
        Mistake(name, task, cells, (loses,) if isinstance(loses, str) else loses, message)
        for name, cells, loses, message in rows
    )


def edited(cell: str, *changes: tuple[str, str]) -> dict[str, str]:
    """The source notebook's solution in a cell, in which each text is replaced by another."""
    source = _sources(cell.partition("-")[0])[cell]
    for before, after in changes:
        if before not in source:
            raise ValueError(f"{cell} has no {before!r}")
        source = source.replace(before, after)
    return {cell: source}


@cache
def _sources(project: str) -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(ROOT / f"{project}.ipynb", as_version=4).cells}
