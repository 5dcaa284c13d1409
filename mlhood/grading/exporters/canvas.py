"""Canvas: fill scores into the gradebook that Canvas has exported, so that it can be imported again.

Canvas's export has the columns `Student`, `ID`, further ids, `Section`, and one `NAME (NUMBER)` for each assignment;
a row or two above the students' hold posting policies and `Points Possible`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.csv_cells import csv_text, read_csv, round_points
from mlhood.grading.gradebook.records import Record
from mlhood.grading.gradebook.roster import sorted_words
from mlhood.grading.intake.layouts import ASSIGNMENT

IDS = ("ID", "SIS User ID", "SIS Login ID")
COLUMN = re.compile(r"(?P<name>.*) \((?P<number>\d+)\)")
GRADED = {"done", "refused"}  # what has failed through our fault, or is not graded yet, has no score


@dataclass(frozen=True)
class FilledGradebook:
    """The filled table, the number of scores in it, and a note for every score that could not be filled in."""

    text: str
    scores: int
    notes: tuple[str, ...]


def fill(exported: Path, records: Sequence[Record], columns: Mapping[str, str] | None = None) -> FilledGradebook:
    """Fill scores into the CSV that Canvas has exported; all other cells keep their content.

    `columns` has the titles of the columns of projects, where their names are ambiguous.

    Raises:
        GradingError: The file is not such an export, or the column of a project is ambiguous.
    """
    rows = read_csv(exported)
    if not rows or not {"Student", "ID"} <= set(rows[0]):
        raise GradingError(
            "this is not a gradebook exported by Canvas",
            where=exported,
            expected="a first row with the columns Student and ID",
            got=", ".join(rows[0][:8]) if rows else "an empty file",
            todo="in Canvas: Grades > Export > Export Entire Gradebook",
        )
    header = rows[0]
    projects = dict.fromkeys(record.project.id for record in records)
    positions = {project: _column(exported, header, project, columns or {}) for project in projects}
    students = _StudentRows(header, rows[1:])
    scores, notes = 0, []
    for record in records:
        row, project = students.find(record), record.project.id
        if record.status not in GRADED:
            notes.append(f"{record.student}: {project} is not filled in: {record.reason}")
        elif row is None:
            notes.append(f"{record.student}: {project} is not filled in: no row, or several, match this student")
        else:
            row.extend([""] * (len(header) - len(row)))
            row[positions[project]] = str(round_points(record.score))
            scores += 1
    return FilledGradebook(csv_text(rows), scores, tuple(notes))


def _column(exported: Path, header: Sequence[str], project: str, columns: Mapping[str, str]) -> int:
    if columns.get(project) in header:
        return header.index(columns[project])
    assignments = {title: index for index, title in enumerate(header) if COLUMN.fullmatch(title)}
    matches = [title for title in assignments if project in map(str.upper, ASSIGNMENT.findall(title))]
    if len(matches) == 1 and project not in columns:
        return assignments[matches[0]]
    raise GradingError(
        f"the column of {project} is ambiguous or missing",
        where=exported,
        expected=f"one column such as `{project} (12345)`",
        got=", ".join(matches or list(assignments)[:10]) or "no assignment at all",
        todo=f"name it: --column '{project}=TITLE OF THE COLUMN'",
    )


class _StudentRows:
    """The rows of the students, by every id and by name; what several rows share identifies none of them."""

    def __init__(self, header: Sequence[str], rows: Iterable[list[str]]) -> None:
        self._by_id: dict[str, list[list[str]]] = {}
        self._by_name: dict[str, list[list[str]]] = {}
        id_columns = [header.index(name) for name in IDS if name in header]
        id_column, name_column = header.index("ID"), header.index("Student")
        for row in rows:
            if len(row) <= max(id_column, name_column) or not row[id_column].strip():
                continue  # the rows of posting policies and of points possible have no id
            ids = {row[i].strip() for i in id_columns if i < len(row) and row[i].strip()}
            for key in ids | {name.partition("@")[0] for name in ids}:
                self._by_id.setdefault(key, []).append(row)
            self._by_name.setdefault(sorted_words(row[name_column]), []).append(row)

    def find(self, record: Record) -> list[str] | None:
        """Return the row of a student, or None if there is not exactly one."""
        name = sorted_words(record.submission.name or record.student)
        rows = self._by_id.get(record.student) or self._by_name.get(name) or []
        return rows[0] if len(rows) == 1 else None
