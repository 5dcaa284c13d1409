"""`mlhood export`: choose the format, and write the files atomically.

Canvas can import only the gradebook that it has exported, with scores filled in. That has the columns `Student`, `ID`,
further ids, `Section`, and one `NAME (NUMBER)` for each assignment; a row or two above the students' hold posting
policies and `Points Possible`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
DESTINATIONS = {
    "csv": (
        "open it in a spreadsheet, or import it in Moodle, a project at a time (--project P1): Grades > Import > CSV "
        "file; map `email` (of --roster) to the email address, and `score` to the assignment, whose grades can then no "
        "longer be edited in the assignment itself"
    ),
    "nbgrader": (
        "the file is what `nbgrader export` writes, for tools that read that; nbgrader itself has no command that "
        "imports marks into its own gradebook"
    ),
    "canvas": "in Canvas: Grades > Import; it shows what will change before it stores the scores",
    "gradescope": (
        "Gradescope has no page that imports these files: they are what an autograder leaves in "
        "/autograder/results/results.json. To have Gradescope grade, use `mlhood release --gradescope`"
    ),
    "classroom": (
        "GitHub Classroom has no page that imports marks: the files are what its graders pass to its reporter, within "
        "the workflow that `mlhood release` adds to the student version"
    ),
}
"""Where each format is imported, as the documentation of that system says; said after every export.

Sources: Moodle's "Grade import"; Canvas's "Gradebook Action Menu"; nbgrader's `nbgrader export`; Gradescope's
"Autograder Specifications"; GitHub's "Use autograding".
"""
IDS = ("ID", "SIS User ID", "SIS Login ID")
COLUMN = re.compile(r"(?P<name>.*) \((?P<number>\d+)\)")
GRADED = {"done", "refused"}  # what has failed through our fault, or is not graded yet, has no score


@dataclass(frozen=True)
class ExportOptions:
    """What to export where; see `mlhood export --help`."""

    format: str
    to: Path
    fill: Path | None = None
    columns: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    late: Path | None = None


def export(gradebook: Path, options: ExportOptions) -> str:
    """Write the marks of a gradebook; return a message about what was written.

    Raises:
        GradingError: The gradebook, format or project does not exist, or the file to fill is invalid.
        OutputError: The files cannot be written.
    """
    _check_format(options)
    with Gradebook(gradebook, must_exist=True) as book:
        policy = parse_late_policy(read_text(options.late), options.late) if options.late else None
        exported = [
            record for record in records(book, policy) if not options.projects or record.project.id in options.projects
        ]
    if not exported:
        unknown = [name for name in options.projects if name not in PROJECTS]
        near = nearest(unknown[0], PROJECTS) if unknown else None
        raise GradingError(
            "there are no marks to export",
            where=gradebook,
            got=f"nothing for {', '.join(options.projects)}" if options.projects else "an empty gradebook",
            todo=near or "grade first: mlhood grade SUBMISSIONS --out DIR",
        )
    ungraded = sum(record.status in {"open", "failed"} for record in exported)
    notes = [f"note: {ungraded} of them are not graded; see `mlhood grade --again`"] if ungraded else []
    notes += _undecided_note(exported, gradebook)
    return "\n".join([_write(options, exported), f"where it goes: {DESTINATIONS[options.format]}", *notes])


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


def _check_format(options: ExportOptions) -> None:
    formats = [*TABLES, *FILES, "canvas"]
    if options.format not in formats:
        raise GradingError(
            "there is no such format",
            where=options.format,
            expected=f"one of {', '.join(formats)}",
            todo=nearest(options.format, formats),
        )
    if options.format == "canvas" and options.fill is None:
        raise GradingError(
            "Canvas needs its own gradebook to fill in",
            expected="the CSV that Canvas has exported",
            todo="in Canvas: Grades > Export; then mlhood export ... --format canvas --fill FILE",
        )


def _write(options: ExportOptions, exported: Sequence[Record]) -> str:
    if options.format in TABLES:
        write_atomic(options.to, TABLES[options.format](exported).encode("utf-8", "replace"))
        return f"{len(exported)} results in {options.to}"
    if options.fill is not None and options.format == "canvas":
        filled = fill(options.fill, exported, dict(_column_option(text) for text in options.columns))
        write_atomic(options.to, filled.text.encode("utf-8", "replace"))
        return "\n".join([*filled.notes, f"{filled.scores} scores in {options.to}"])
    convert, name = FILES[options.format]
    files = formats.student_files(exported, convert, name)
    for path, text in files.items():
        make_folder((options.to / path).parent)
        write_atomic(options.to / path, text.encode())
    return f"{len(files)} files below {options.to}"


def _column_option(text: str) -> tuple[str, str]:
    project, equals, title = text.partition("=")
    if not equals:
        raise GradingError("invalid --column", where=text, expected="PROJECT=TITLE, such as 'P1=Homework (901234)'")
    return project.strip(), title


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
