"""`mlhood export`: choose the format, and write the files whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlhood.errors import GradingError, OutputError
from mlhood.files.atomic import write_whole
from mlhood.grading.batch.grade_class import STORE
from mlhood.grading.exporters import formats
from mlhood.grading.exporters.canvas import fill
from mlhood.grading.exporters.manual_marks import hand_table
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.gradebook.late import read_late
from mlhood.grading.gradebook.records import Record, records

TABLES = {"csv": formats.plain_csv, "nbgrader": formats.nbgrader_csv}
FILES = {"gradescope": (formats.gradescope, "results.json"), "classroom": (formats.github_classroom, "result.json")}


@dataclass(frozen=True)
class Target:
    """What to export where; see `mlhood export --help`."""

    format: str
    to: Path
    fill: Path | None = None
    columns: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    late: Path | None = None


def exported(gradebook: Path, target: Target) -> str:
    """Write the marks of a gradebook; what was written, in words.

    Raises:
        GradingError: There is no such gradebook, format or project, or the file to fill has faults.
        OutputError: The files cannot be written.
    """
    _refuse(target)
    with Gradebook(gradebook, must_exist=True) as book:
        late = read_late(target.late.read_text(encoding="utf-8"), target.late) if target.late else None
        found = [one for one in records(book, late) if not target.projects or one.plan.id in target.projects]
    if not found:
        raise GradingError(
            "there are no marks to export",
            where=gradebook,
            got=f"nothing for {', '.join(target.projects)}" if target.projects else "an empty gradebook",
            todo="grade first: mlhood grade SUBMISSIONS --out DIR",
        )
    open_ones = sum(one.status in {"open", "failed"} for one in found)
    text = _write(target, found)
    return text + (f"\nnote: {open_ones} of them are not graded; see `mlhood grade --again`" if open_ones else "")


def hand_table_to(gradebook: Path, path: Path) -> str:
    """Write the table of written questions; what was written, in words."""
    from mlhood.grading.similarity.class_similarity import answers

    store = gradebook.parent / STORE
    with Gradebook(gradebook, must_exist=True) as book:
        text = hand_table(book, lambda one: answers(store / f"{one.handed.sha256}.ipynb"))
        rows = sum(len(one.plan.questions) for one in records(book))
    write_whole(path, text.encode("utf-8", "replace"))
    return f"{rows} rows in {path}; fill in the column `points`"


def class_report_to(gradebook: Path, path: Path, given: Iterable[Path]) -> str:
    """Write the report about a class; what was written, in words."""
    from mlhood.grading.reports.class_report import class_report
    from mlhood.grading.similarity.class_similarity import likeness

    with Gradebook(gradebook, must_exist=True) as book:
        found = records(book)
    alike = likeness(found, gradebook.parent / STORE, given)
    write_whole(path, class_report(found, alike).encode("utf-8", "replace"))
    pairs, copies = (sum(len(getattr(one, kind)) for one in alike.values()) for kind in ("pairs", "copies"))
    return f"{len(found)} results, {pairs} pairs that are alike, {copies} copies of the package's source: {path}"


def _refuse(target: Target) -> None:
    known = [*TABLES, *FILES, "canvas"]
    if target.format not in known:
        raise GradingError("there is no such format", where=target.format, expected=f"one of {', '.join(known)}")
    if target.format == "canvas" and target.fill is None:
        raise GradingError(
            "Canvas needs its own gradebook to fill in",
            expected="the CSV that Canvas has exported",
            todo="in Canvas: Grades > Export; then mlhood export ... --format canvas --fill FILE",
        )


def _write(target: Target, found: Sequence[Record]) -> str:
    if target.format in TABLES:
        write_whole(target.to, TABLES[target.format](found).encode("utf-8", "replace"))
        return f"{len(found)} results in {target.to}"
    if target.fill is not None and target.format == "canvas":
        columns = dict(_pair(one) for one in target.columns)
        filled = fill(target.fill, found, columns)
        write_whole(target.to, filled.text.encode("utf-8", "replace"))
        return "\n".join([*filled.notes, f"{filled.scores} scores in {target.to}"])
    make, name = FILES[target.format]
    files = formats.per_student(found, make, name)
    for path, text in files.items():
        make_folder((target.to / path).parent)
        write_whole(target.to / path, text.encode())
    return f"{len(files)} files below {target.to}"


def _pair(text: str) -> tuple[str, str]:
    project, equals, title = text.partition("=")
    if not equals:
        raise GradingError("this names no column", where=text, expected="PROJECT=TITLE, such as 'P1=Homework (901234)'")
    return project.strip(), title


def make_folder(folder: Path) -> None:
    """Make a folder and those above it.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            "the folder cannot be made",
            where=folder,
            got=error.strerror or str(error),
            todo="choose another folder with --to",
        ) from None
