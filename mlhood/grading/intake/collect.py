"""Find the submissions of a class, and copy them into a store in which a file is named after its content.

Whatever is wrong with one submission becomes its result; it never stops the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from zoneinfo import ZoneInfo

from mlhood.errors import GradingError
from mlhood.files.atomic import write_atomic
from mlhood.files.paths import make_folder
from mlhood.grading.intake.files import READ_ERRORS, TRUNCATED, InputFile, input_files
from mlhood.grading.intake.layouts import OPTION, SUBMITTED, Owner, choose_layout

MAX_BYTES = 32 << 20
MAX_STUDENT_NOTEBOOKS = 12
MAX_TIMESTAMP_BYTES = 200
TIMESTAMP = "timestamp.txt"
MISPLACED = "this layout has no submissions at this path, so it belongs to no student"

TOO_MANY_NOTEBOOKS = f"this student submitted more than {MAX_STUDENT_NOTEBOOKS} notebooks, and this one is not graded"

Owned = tuple[InputFile, Owner]


@dataclass(frozen=True)
class SubmittedFile:
    """One notebook of one student, or the reason why there is none to grade.

    Args:
        student: The student's id in the layout.
        name: Full name where the layout has it, else empty.
        assignment: Such as `P1`; empty where neither a folder nor the file's name contains it.
        source: Where it was found, for people to read.
        path: The copy to grade: named after its content, so that nothing in its name is the student's.
        sha256: Hash of the content; empty if there is nothing to grade.
        submitted: Time of submission, with its zone, where the layout has it.
        late: Whether the layout marks it as late, without a time; None if the layout marks none.
        problem: Why it cannot be graded; empty if it can.
        version: Name of the variant to grade it as; empty for the published course.
    """

    student: str
    name: str = ""
    assignment: str = ""
    source: str = ""
    path: Path | None = None
    sha256: str = ""
    submitted: datetime | None = None
    late: bool | None = None
    problem: str = ""
    version: str = ""

    @property
    def slot(self) -> str:
        """What a later submission of the same student replaces: the same assignment, else the same file."""
        return self.assignment or self.source


@dataclass(frozen=True)
class Collection:
    """The name of the layout, a submission for every student and assignment, and notebooks that do not count."""

    layout: str
    submissions: tuple[SubmittedFile, ...]
    extras: tuple[SubmittedFile, ...] = ()


def collect(source: Path, store: Path, layout_name: str | None = None) -> Collection:
    """Copy the submissions of a folder or zip archive into a store, which is created if it does not exist.

    `layout_name` may be left out where the layout has an unambiguous marker (see `layouts.choose_layout`).

    Raises:
        GradingError: The source does not exist, holds no submission, or the layout is unknown or ambiguous.
        OutputError: The store cannot be written.
    """
    make_folder(store)
    with input_files(source) as files:
        title = source.stem if source.is_file() else source.resolve().name
        layout = choose_layout([file.path for file in files], title=title, name=layout_name)
        owned = [(file, owner) for file in files if (owner := layout.owner(file.path))]
        if not owned:
            raise GradingError(
                "there are no submissions here",
                where=source,
                expected=f"notebooks in the layout {layout.name!r}",
                got=f"{len(files)} files" + (f", such as {files[0].path}" if files else ""),
                todo=OPTION,
            )
        times = _submission_times(owned) if layout.name == "nbgrader" else {}
        submissions, extras = _copy_submissions(owned, times, store)
        extras += [
            SubmittedFile("", source=str(file.path), problem=file.problem or MISPLACED)
            for file in files
            if file.problem == TRUNCATED or (_is_notebook(file.path) and layout.owner(file.path) is None)
        ]
    # in the flat layout a file that is not a notebook does not indicate a student
    submissions += _without_notebook(owned) if layout.name != "flat" else []
    return Collection(layout.name, tuple(submissions), tuple(extras))


def _is_notebook(path: PurePosixPath) -> bool:
    return path.suffix.lower() == ".ipynb"


def _copy_submissions(
    owned: Iterable[Owned], times: Mapping[Owner, datetime], store: Path
) -> tuple[list[SubmittedFile], list[SubmittedFile]]:
    """Copy the notebook that counts for each student and assignment; return these, and the others with the reason.

    The preferred one counts. If it cannot be copied, the next one does.
    """
    candidates: dict[tuple[str, str], list[tuple[SubmittedFile, InputFile]]] = {}
    for file, owner in owned:
        if _is_notebook(file.path):
            found = SubmittedFile(owner.student, owner.name, owner.assignment, str(file.path), problem=file.problem)
            found = replace(found, submitted=times.get(owner), late=owner.late)
            candidates.setdefault((found.student, found.slot), []).append((found, file))
    chosen: list[SubmittedFile] = []
    extras: list[SubmittedFile] = []
    notebooks: Counter[str] = Counter()
    for (student, _), files in sorted(candidates.items()):
        notebooks[student] += 1
        if notebooks[student] > MAX_STUDENT_NOTEBOOKS:
            extras += [replace(found, problem=found.problem or TOO_MANY_NOTEBOOKS) for found, _ in files]
            continue
        results: list[SubmittedFile] = []
        counts: SubmittedFile | None = None
        for found, file in sorted(files, key=lambda candidate: _preference(candidate[0]), reverse=True):
            if counts:
                results.append(replace(found, problem=found.problem or f"{counts.source} counts instead"))
            elif (copied := _copied(found, file, store)).problem:
                results.append(copied)
            else:
                counts = copied
        chosen.append(counts or results.pop(0))
        extras += results
    return chosen, extras


def _copied(found: SubmittedFile, file: InputFile, store: Path) -> SubmittedFile:
    """Return a notebook with the path of its copy in the store, or with the reason why it has none."""
    if found.problem:
        return found
    try:
        with file.open() as source:
            data = source.read(MAX_BYTES + 1)
    except READ_ERRORS as error:
        return replace(found, problem=f"it cannot be read: {error}")
    if len(data) > MAX_BYTES:
        advice = "clear its outputs (Edit > Clear Outputs of All Cells) and save it"
        return replace(found, problem=f"it is larger than {MAX_BYTES >> 20} MiB; {advice}")
    sha256 = hashlib.sha256(data).hexdigest()
    return replace(found, path=write_atomic(store / f"{sha256}.ipynb", data), sha256=sha256)


def _preference(file: SubmittedFile) -> tuple[bool, bool, list[str | int], str]:
    stem = PurePosixPath(file.source).stem
    pieces = re.split(r"([0-9]{1,9})", stem)  # words and numbers alternate
    natural = [int(piece) if position % 2 else piece for position, piece in enumerate(pieces)]
    # `P1-2` is a student's second submission, so larger numbers are preferred
    return not file.problem, stem.upper() == file.assignment.upper(), natural, file.source


def _without_notebook(owned: Iterable[Owned]) -> Iterator[SubmittedFile]:
    """Yield a result for every student who submitted files, but no notebook."""
    files: dict[str, list[Owned]] = {}
    for file, owner in owned:
        files.setdefault(owner.student, []).append((file, owner))
    for student, theirs in files.items():
        paths = [file.path for file, _ in theirs]
        if not any(map(_is_notebook, paths)):
            names = ", ".join(map(str, paths[:3])) + (" …" if len(paths) > 3 else "")
            problem = f"there is no notebook among {names}"
            yield SubmittedFile(student, theirs[0][1].name, source=str(paths[0]), problem=problem)


def _submission_times(owned: Iterable[Owned]) -> dict[Owner, datetime]:
    """Return the times that nbgrader stores in `[submitted/]STUDENT/ASSIGNMENT/timestamp.txt`, and nowhere else."""
    times = {}
    for file, owner in owned:
        documented = PurePosixPath(owner.student, owner.assignment, TIMESTAMP)
        if file.path in (documented, SUBMITTED / documented) and not file.problem:
            with contextlib.suppress(*READ_ERRORS), file.open() as stream:
                times[owner] = parse_time(stream.read(MAX_TIMESTAMP_BYTES).decode("ascii").strip())
    return times


def parse_time(text: str) -> datetime:
    """Parse a time as nbgrader writes it: `2026-02-02 15:58:23.948203 UTC`, with a zone, an offset or neither (UTC).

    Raises:
        ValueError: It is not a time.
    """
    words = text.split()
    zone = words[-1] if len(words) > 1 and words[-1][0].isalpha() else ""
    time = datetime.fromisoformat(text.removesuffix(zone).strip())
    if time.tzinfo is not None:
        return time
    try:
        return time.replace(tzinfo=ZoneInfo(zone) if zone not in {"", "UTC"} else UTC)
    except (KeyError, OSError) as error:
        raise ValueError(f"unknown time zone {zone!r}") from error
