"""The submissions of a class of known marks: the solved student edition with one mutation in each.

Each mutation lists the checks that it makes fail, so every mark of the class can be compared with the expected one. By
default a mutation leaves one task as the student gets it, which makes all of its checks fail.
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
from mlhood.files.paths import did_you_mean
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.master import solution_source, student_version
from mlhood.grading.notebooks.notebook import Label, cell_name, label

MAX_TABLE_BYTES = 16 << 20
Checks = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Mutation:
    """A change of the solved edition: new source by cell, and the checks that fail, as pairs of task and name."""

    name: str
    cells: dict[str, str]
    loses: Checks


@dataclass(frozen=True)
class Variant:
    """A submission: the student, the name of its mutation, the file's content, and the checks that must fail."""

    student: str
    name: str
    content: bytes
    loses: Checks


SOLVED = Mutation("solved", {}, frozenset())


def solved(master: NotebookNode, path: Path) -> NotebookNode:
    """Return the student edition of a master notebook, with the master's solutions filled in.

    Raises:
        NotebookError: Its solution markers are not balanced.
    """
    edition = copy.deepcopy(master)
    student_version(edition, path)
    sources = {cell_name(cell): solution_source(cell) for cell in master.cells if cell.cell_type == "code"}
    for cell in edition.cells:
        cell_label = label(cell)
        if cell.cell_type == "code" and cell_label and cell_label.role == "solution":
            cell.source = sources[cell_name(cell)]
    return edition


def empty_tasks(master: NotebookNode, project: Project, path: Path) -> list[Mutation]:
    """Return a mutation for each task that leaves it empty.

    Raises:
        NotebookError: The master's solution markers are not balanced.
    """
    edition = copy.deepcopy(master)
    student_version(edition, path)
    mutations = []
    for task in project.tasks:
        empty = {cell_name(cell): cell.source for cell in edition.cells if label(cell) == Label(task.id, "solution")}
        loses = frozenset((task.id, check.name) for check in task.checks)
        mutations.append(Mutation(f"{task.id} left empty", empty, loses))
    return mutations


def read_mutations(file: Path, project: Project) -> list[Mutation]:
    """Read mutations from JSON: a list of `{"name": ..., "cells": {cell: source}, "loses": [check, ...]}`.

    Raises:
        GradingError: It cannot be read, has another structure, or names a check that the project does not have.
    """
    try:
        if file.stat().st_size > MAX_TABLE_BYTES:
            raise ValueError(f"it is larger than {MAX_TABLE_BYTES >> 20} MiB")
        rows = json.loads(file.read_text(encoding="utf-8"))
        mutations = [Mutation(str(row["name"]), dict(row["cells"]), _checks(row["loses"], project)) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise GradingError(
            "the table of wrong solutions cannot be read",
            where=file,
            expected='JSON: [{"name": "...", "cells": {"P1-1-solution": "..."}, "loses": ["check"]}, ...]',
            got=f"{type(error).__name__}: {error}",
            todo=did_you_mean(file),
        ) from None
    if not mutations:
        raise GradingError("the table of wrong solutions is empty", where=file, todo="leave --wrong out")
    return mutations


def _checks(names: Iterable[str], project: Project) -> Checks:
    requested = set(names)
    checks = [(task.id, check.name) for task in project.tasks for check in task.checks if check.name in requested]
    unknown = requested - {name for _, name in checks}
    if unknown:
        raise ValueError(f"{project.id} has no check {', '.join(sorted(unknown))}")
    return frozenset(checks)


def variants(edition: NotebookNode, mutations: Sequence[Mutation], count: int) -> list[Variant]:
    """Return `count` submissions of the solved student edition that cycle through the mutations.

    No two have the same bytes, as in a class.

    Raises:
        GradingError: A mutation is for a cell that the notebook does not have.
    """
    return [_variant(edition, mutations[i % len(mutations)], i) for i in range(count)]


def _variant(edition: NotebookNode, mutation: Mutation, index: int) -> Variant:
    book = copy.deepcopy(edition)
    cells = {cell_name(cell): cell for cell in book.cells}
    unknown = sorted(set(mutation.cells) - set(cells))
    if unknown:
        raise GradingError(
            "a wrong solution is for a cell that the notebook does not have",
            where=mutation.name,
            expected="the names of cells of this project",
            got=", ".join(unknown),
        )
    for name, source in mutation.cells.items():
        cells[name].source = source.strip("\n")
    student = f"s{index:04}"
    book.metadata["student"] = student
    return Variant(student, mutation.name, nbformat.writes(book).encode() + b"\n", mutation.loses)


def write_submissions(submissions: Iterable[Variant], folder: Path, project: str) -> Path:
    """Write submissions as a flat folder of notebooks, and return it."""
    folder.mkdir(parents=True)
    for variant in submissions:
        (folder / f"{variant.student}_{project}.ipynb").write_bytes(variant.content)
    return folder
