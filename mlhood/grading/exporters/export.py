"""`mlhood export`: choose the format, and write the files atomically."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.errors import GradingError, nearest
from mlhood.files.atomic import write_atomic
from mlhood.files.paths import make_folder, read_text
from mlhood.grading.exporters import formats
from mlhood.grading.exporters.canvas import fill
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.late import parse_late_policy
from mlhood.grading.gradebook.records import Record, records
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
    yield f"next: mlhood marks {shlex.quote(str(gradebook))} --open"


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
