"""Canvas: the scores go into the gradebook that Canvas has exported, so that it takes the file back as its own.

Canvas's export has the columns `Student`, `ID`, further ids, `Section` and one `NAME (NUMBER)` an assignment; a row
or two before the students' hold posting policies and `Points Possible`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.csv_cells import csv_text, number, read_csv
from mlhood.grading.gradebook.records import Record
from mlhood.grading.intake.layouts import ASSIGNMENT

IDS = ("ID", "SIS User ID", "SIS Login ID")
COLUMN = re.compile(r"(?P<name>.*) \((?P<number>\d+)\)")
GRADED = {"done", "refused"}  # what has failed through our fault, or is not graded yet, is no score


@dataclass(frozen=True)
class Filled:
    """The filled table, how many scores are in it, and what could not be filled in, in words."""

    text: str
    scores: int
    notes: tuple[str, ...]


def fill(exported: Path, found: Sequence[Record], columns: Mapping[str, str] | None = None) -> Filled:
    """Fill scores into an exported gradebook; all other cells stay what they are.

    Args:
        exported: The CSV that Canvas has exported.
        found: The results.
        columns: For projects whose column cannot be told by its name: the column's title.

    Raises:
        GradingError: The file is no such export, or the column of a project cannot be told.
    """
    rows = read_csv(exported)
    if not rows or not {"Student", "ID"} <= set(rows[0]):
        raise GradingError(
            "this is no gradebook that Canvas has exported",
            where=exported,
            expected="a first row with the columns Student and ID",
            got=", ".join(rows[0][:8]) if rows else "an empty file",
            todo="in Canvas: Grades > Export > Export Entire Gradebook",
        )
    header = rows[0]
    places = {one.plan.id: _column(exported, header, one.plan.id, columns or {}) for one in found}
    students = _Students(header, rows[1:])
    scores, notes = 0, []
    for one in found:
        row = students.row(one)
        if one.status not in GRADED:
            notes.append(f"{one.student}: {one.plan.id} is not filled in: {one.reason}")
        elif row is None:
            notes.append(f"{one.student}: {one.plan.id} is not filled in: no row, or several, are this student's")
        else:
            row.extend([""] * (len(header) - len(row)))
            row[places[one.plan.id]] = str(number(one.score))
            scores += 1
    return Filled(csv_text(rows), scores, tuple(notes))


def _column(exported: Path, header: Sequence[str], project: str, columns: Mapping[str, str]) -> int:
    assignments = {title: at for at, title in enumerate(header) if COLUMN.fullmatch(title)}
    if columns.get(project) in header:
        return header.index(columns[project])
    fitting = [title for title in assignments if project in map(str.upper, ASSIGNMENT.findall(title))]
    if len(fitting) == 1 and project not in columns:
        return assignments[fitting[0]]
    raise GradingError(
        f"the column of {project} cannot be told",
        where=exported,
        expected=f"one column such as `{project} (12345)`",
        got=", ".join(fitting or list(assignments)[:10]) or "no assignment at all",
        todo=f"name it: --column '{project}=TITLE OF THE COLUMN'",
    )


class _Students:
    """The rows of the students, by every id and by name; an id of several rows is nobody's."""

    def __init__(self, header: Sequence[str], rows: Iterable[list[str]]) -> None:
        self._by_id: dict[str, list[list[str]]] = {}
        self._by_name: dict[str, list[list[str]]] = {}
        places = [header.index(name) for name in IDS if name in header]
        at_id, at_name = header.index("ID"), header.index("Student")
        for row in rows:
            if len(row) <= max(at_id, at_name) or not row[at_id].strip():
                continue  # the rows of posting policies and of points possible have no id
            ids = {row[at].strip() for at in places if at < len(row) and row[at].strip()}
            for one in ids | {one.partition("@")[0] for one in ids}:
                self._by_id.setdefault(one, []).append(row)
            self._by_name.setdefault(_letters(row[at_name]), []).append(row)

    def row(self, one: Record) -> list[str] | None:
        """The row of a student, or None if it cannot be told."""
        found = self._by_id.get(one.student) or self._by_name.get(_letters(one.handed.name or one.student)) or []
        return found[0] if len(found) == 1 else None


def _letters(name: str) -> str:
    """A name whatever the order of its words: `Lovelace, Ada` is `Ada Lovelace`."""
    return " ".join(sorted(re.findall(r"\w+", name.lower())))
