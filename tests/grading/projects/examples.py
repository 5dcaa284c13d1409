"""Entries of wrong example solutions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[3]
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
