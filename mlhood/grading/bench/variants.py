"""The submissions of a class whose marks are known: the student edition, solved, with one fault in each.

Which checks a fault costs is written down beside it, so every mark of the class can be compared with what it should be.
Without such a table the faults are the tasks themselves, each left as the student gets it: that costs all its points.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mlhood.errors import GradingError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import BEGIN_SOLUTION, END_SOLUTION, Label, cell_name, label
from mlhood.grading.notebooks.stubs import student_version

MAX_TABLE_BYTES = 16 << 20
Checks = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Fault:
    """Something wrong: new source by cell, and the checks that it costs, as pairs of task and name."""

    name: str
    cells: dict[str, str]
    loses: Checks


@dataclass(frozen=True)
class Variant:
    """A submission: whose it is, what was done to it, the file's content, and the checks that it must lose."""

    student: str
    name: str
    content: bytes
    loses: Checks


RIGHT = Fault("solved", {}, frozenset())


def solved(master: NotebookNode, path: Path) -> NotebookNode:
    """The student edition of a master notebook, with the master's own solutions filled in.

    Raises:
        NotebookError: Its solution markers do not pair up.
    """
    edition = copy.deepcopy(master)
    student_version(edition, path)
    sources = {cell_name(cell): cell.source for cell in master.cells if cell.cell_type == "code"}
    for cell in edition.cells:
        known = label(cell)
        if cell.cell_type == "code" and known and known.role == "solution":
            cell.source = _without_markers(sources[cell_name(cell)])
    return edition


def _without_markers(source: str) -> str:
    lines = source.split("\n")
    return "\n".join(line for line in lines if BEGIN_SOLUTION not in line and END_SOLUTION not in line)


def empty_tasks(master: NotebookNode, project: Project, path: Path) -> list[Fault]:
    """For each task the fault of not having done it.

    Raises:
        NotebookError: The master's solution markers do not pair up.
    """
    edition = copy.deepcopy(master)
    student_version(edition, path)
    faults = []
    for task in project.tasks:
        empty = {cell_name(cell): cell.source for cell in edition.cells if label(cell) == Label(task.id, "solution")}
        loses = frozenset((task.id, check.name) for check in task.checks)
        faults.append(Fault(f"{task.id} left empty", empty, loses))
    return faults


def read_faults(file: Path, project: Project) -> list[Fault]:
    """The faults of a table: JSON, a list of `{"name": ..., "cells": {cell: source}, "loses": [check, ...]}`.

    Raises:
        GradingError: It cannot be read, is no such table, or names a check that the project does not have.
    """
    try:
        if file.stat().st_size > MAX_TABLE_BYTES:
            raise ValueError(f"it is larger than {MAX_TABLE_BYTES >> 20} MiB")
        rows = json.loads(file.read_text(encoding="utf-8"))
        faults = [Fault(str(row["name"]), dict(row["cells"]), _checks(row["loses"], project)) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise GradingError(
            "the table of wrong solutions cannot be read",
            where=file,
            expected='JSON: [{"name": "...", "cells": {"P1-1-solution": "..."}, "loses": ["check"]}, ...]',
            got=f"{type(error).__name__}: {error}",
        ) from None
    if not faults:
        raise GradingError("the table of wrong solutions is empty", where=file, todo="leave --wrong out")
    return faults


def _checks(names: Iterable[str], project: Project) -> Checks:
    known = [(task.id, check.name) for task in project.tasks for check in task.checks]
    found = frozenset(one for one in known if one[1] in set(names))
    unknown = set(names) - {name for _, name in found}
    if unknown:
        raise ValueError(f"{project.id} has no check {', '.join(sorted(unknown))}")
    return found


def variants(edition: NotebookNode, faults: Sequence[Fault], count: int) -> list[Variant]:
    """So many submissions: the faults in turn, one in each, over again until there are enough.

    No two have the same bytes, since what is handed in twice is graded once.

    Args:
        edition: The solved student edition.
        faults: At least one; `RIGHT` is one that costs nothing.
        count: How many.

    Raises:
        GradingError: A fault names a cell that the notebook does not have.
    """
    return [_variant(edition, faults[number % len(faults)], number) for number in range(count)]


def _variant(edition: NotebookNode, fault: Fault, number: int) -> Variant:
    book = copy.deepcopy(edition)
    cells = {cell_name(cell): cell for cell in book.cells}
    unknown = sorted(set(fault.cells) - set(cells))
    if unknown:
        raise GradingError(
            "a wrong solution is for a cell that the notebook does not have",
            where=fault.name,
            expected="the names of cells of this project",
            got=", ".join(unknown),
        )
    for name, source in fault.cells.items():
        cells[name].source = source.strip("\n")
    student = f"s{number:04}"
    book.metadata["student"] = student
    return Variant(student, fault.name, nbformat.writes(book).encode() + b"\n", fault.loses)


def hand_in(handed: Iterable[Variant], folder: Path, project: str) -> Path:
    """Write submissions as a flat folder of notebooks, and return it."""
    folder.mkdir(parents=True)
    for one in handed:
        (folder / f"{one.student}_{project}.ipynb").write_bytes(one.content)
    return folder
