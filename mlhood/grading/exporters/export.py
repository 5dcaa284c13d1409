"""`mlhood export`: choose the format, and write the files atomically.

Canvas can import only the gradebook that it has exported, with scores filled in. That has the columns `Student`, `ID`,
further ids, `Section`, and one `NAME (NUMBER)` for each assignment; a row or two above the students' hold posting
policies and `Points Possible`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from mlhood.errors import GradingError, nearest
from mlhood.files.atomic import write_atomic
from mlhood.files.csv_cells import csv_text, read_csv, round_points
from mlhood.files.paths import make_folder, read_text
from mlhood.grading.exporters import formats
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.late import parse_late_policy
from mlhood.grading.gradebook.records import Record, records
from mlhood.grading.gradebook.roster import sorted_words
from mlhood.grading.intake.layouts import ASSIGNMENT
from mlhood.grading.projects import PROJECTS

TABLES = {"csv": formats.plain_csv, "nbgrader": formats.nbgrader_csv}
FILES = {"gradescope": (formats.gradescope, "results.json"), "classroom": (formats.github_classroom, "result.json")}
MAX_NAMES = 20
IDS = ("ID", "SIS User ID", "SIS Login ID")
COLUMN = re.compile(r"(?P<name>.*) \((?P<number>\d+)\)")
GRADED = {"done", "refused"}  # what has failed through our fault, or is not graded yet, has no score


def export(
    gradebook: Path,
    to: Path,
    format: str = "csv",
    *,
    fill_in: Path | None = None,
    columns: Sequence[str] = (),
    projects: Sequence[str] = (),
    late: Path | None = None,
) -> str:
    """Write the marks of a gradebook (see `mlhood export --help`); return a message about what was written.

    Raises:
        GradingError: The gradebook, format or project does not exist, or the file to fill is invalid.
        OutputError: The files cannot be written.
    """
    _require_format(format, fill_in)
    with Gradebook(gradebook, must_exist=True) as book:
        policy = parse_late_policy(read_text(late), late) if late else None
        exported = [record for record in records(book, policy) if not projects or record.project.id in projects]
    if not exported:
        unknown = [name for name in projects if name not in PROJECTS]
        near = nearest(unknown[0], PROJECTS) if unknown else None
        raise GradingError(
            "there are no marks to export",
            where=gradebook,
            got=f"nothing for {', '.join(projects)}" if projects else "an empty gradebook",
            todo=near or "grade first: mlhood grade SUBMISSIONS --out DIR",
        )
    ungraded = sum(record.status in {"open", "failed"} for record in exported)
    notes = [f"note: {ungraded} of them are not graded; see `mlhood grade --again`"] if ungraded else []
    notes += _undecided_note(exported, gradebook)
    written = _write(exported, to, format, fill_in, dict(map(_column_option, columns)))
    return "\n".join([written, *notes])


def _require_format(format: str, fill_in: Path | None) -> None:
    known = [*TABLES, *FILES, "canvas"]
    if format not in known:
        expected = f"one of {', '.join(known)}"
        raise GradingError("there is no such format", where=format, expected=expected, todo=nearest(format, known))
    if format == "canvas" and fill_in is None:
        raise GradingError(
            "Canvas needs its own gradebook to fill in",
            expected="the CSV that Canvas has exported",
            todo="in Canvas: Grades > Export; then mlhood export ... --format canvas --fill FILE",
        )


def _write(exported: Sequence[Record], to: Path, format: str, fill_in: Path | None, columns: Mapping[str, str]) -> str:
    if format in TABLES:
        write_atomic(to, TABLES[format](exported).encode("utf-8", "replace"))
        return f"{len(exported)} results in {to}"
    if fill_in and format == "canvas":
        text, missing = fill(fill_in, exported, columns)
        write_atomic(to, text.encode("utf-8", "replace"))
        return "\n".join([*missing, f"{len(exported) - len(missing)} scores in {to}"])
    convert, name = FILES[format]
    files = formats.student_files(exported, convert, name)
    for path, text in files.items():
        make_folder((to / path).parent)
        write_atomic(to / path, text.encode())
    return f"{len(files)} files below {to}"


def _undecided_note(exported: Sequence[Record], gradebook: Path) -> Iterator[str]:
    """Yield whose marks are not final, if any, so that nobody imports them as if they were."""
    undecided = [f"{r.student} ({', '.join(task.id for task in r.undecided)})" for r in exported if r.undecided]
    if not undecided:
        return
    count = sum(len(record.undecided) for record in exported)
    more = f" and {len(undecided) - MAX_NAMES} more" if len(undecided) > MAX_NAMES else ""
    names = f"{', '.join(undecided[:MAX_NAMES])}{more}"
    yield f"warning: not final: checks of {count} tasks are undecided: {names}"
    yield f"next: mlhood marks {shlex.quote(str(gradebook))} --write to-mark.csv"


def _column_option(text: str) -> tuple[str, str]:
    project, equals, title = text.partition("=")
    if not equals:
        raise GradingError("invalid --column", where=text, expected="PROJECT=TITLE, such as 'P1=Homework (901234)'")
    return project.strip(), title


def fill(exported: Path, records: Sequence[Record], columns: Mapping[str, str] | None = None) -> tuple[str, list[str]]:
    """Fill scores into the CSV that Canvas has exported; all other cells keep their content.

    `columns` has the titles of the columns of projects, where their names are ambiguous.

    Returns:
        The table, and a note for every score that could not be filled in.

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
    notes = []
    for record in records:
        row, project = students.find(record), record.project.id
        if record.status not in GRADED:
            notes.append(f"{record.student}: {project} is not filled in: {record.reason}")
        elif row is None:
            notes.append(f"{record.student}: {project} is not filled in: no row, or several, match this student")
        else:
            row.extend([""] * (len(header) - len(row)))
            row[positions[project]] = str(round_points(record.score))
    return csv_text(rows), notes


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
