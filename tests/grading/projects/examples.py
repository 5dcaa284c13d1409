"""Entries of wrong example solutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[3]
Change = tuple[str, str]
Row = tuple[str, dict[str, str] | tuple, str | tuple[str, ...], str]


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


def mistakes(task: str, *rows: Row) -> tuple[Mistake, ...]:
    """Wrong solutions of one task, each as (name, cells, the check or checks that it loses, message).

    Cells are sources by id, or the number of one of the task's solution cells with changes: `(2, ("x + y", "x - y"))`.
    """
    return tuple(
        Mistake(name, task, _cells(task, cells), (loses,) if isinstance(loses, str) else loses, message)
        for name, cells, loses, message in rows
    )


def _cells(task: str, cells: dict[str, str] | tuple) -> dict[str, str]:
    if isinstance(cells, dict):
        return cells
    number, *changes = cells
    return edited(f"{task.replace('.', '-')}-solution" + (f"-{number}" if number > 1 else ""), *changes)


def edited(cell: str, *changes: Change) -> dict[str, str]:
    """The source notebook's solution in a cell, in which each text is replaced by another."""
    return changed({cell: _sources(cell.partition("-")[0])[cell]}, *changes)


def changed(cells: dict[str, str], *changes: Change) -> dict[str, str]:
    """A cell in which each text is replaced by another."""
    ((cell, source),) = cells.items()
    for before, after in changes:
        if before not in source:
            raise ValueError(f"{cell} has no {before!r}")
        source = source.replace(before, after)
    return {cell: source}


@cache
def _sources(project: str) -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(ROOT / f"{project}.ipynb", as_version=4).cells}
