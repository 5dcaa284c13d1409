"""Find the submissions of a class, and copy them into a store in which a file is named after its content.

Whatever is wrong with one submission becomes its result; it never stops the others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO
from zoneinfo import ZoneInfo

from mlhood.errors import GradingError, OutputError
from mlhood.grading.intake.files import READ_ERRORS, TRUNCATED, InputFile, input_files
from mlhood.grading.intake.layouts import OPTION, SUBMITTED, TIMESTAMP, FileLayout, Owner, choose_layout

MAX_BYTES = 32 << 20
MAX_STUDENT_BYTES = 256 << 20
MAX_STUDENT_NOTEBOOKS = 24
MAX_TIMESTAMP_BYTES = 200
CHUNK = 1 << 20
MISPLACED = "this layout has no submissions at this path, so it belongs to no student"

TOO_MANY_NOTEBOOKS = f"this student submitted more than {MAX_STUDENT_NOTEBOOKS} notebooks, and this one is not graded"

Owned = tuple[InputFile, Owner]
Candidate = tuple["SubmittedFile", InputFile]
# by student and assignment
Times = dict[tuple[str, str], datetime]


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


class _TooLarge(Exception):
    """The file is larger than a submission may be."""


def collect(source: Path, store: Path, layout_name: str | None = None) -> Collection:
    """Copy the submissions of a folder or zip archive into a store, which is created if it does not exist.

    `layout_name` may be left out where the layout has an unambiguous marker (see `layouts.choose_layout`).

    Raises:
        GradingError: The source does not exist, holds no submission, or the layout is unknown or ambiguous.
        OutputError: The store cannot be written.
    """
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(store, error) from None
    with input_files(source) as files:
        title = source.stem if source.is_file() else source.resolve().name
        layout = choose_layout([file.path for file in files], title=title, name=layout_name)
        owned = [(file, owner) for file in files if (owner := layout.owner(file.path))]
        if not owned:
            raise _nothing_found(source, layout, files)
        times = _submission_times(owned) if layout.name == "nbgrader" else {}
        notebooks = [(file, owner) for file, owner in owned if _is_notebook(file.path)]
        submissions, superseded = _copy_submissions(notebooks, times, store)
        misplaced = [
            SubmittedFile("", source=str(file.path), problem=file.problem or MISPLACED)
            for file in files
            if file.problem == TRUNCATED or (_is_notebook(file.path) and layout.owner(file.path) is None)
        ]
    # in the flat layout a file that is not a notebook does not indicate a student
    missing = _without_notebook(owned) if layout.name != "flat" else []
    return Collection(layout.name, (*submissions, *missing), (*superseded, *misplaced))


def _nothing_found(source: Path, layout: FileLayout, files: list[InputFile]) -> GradingError:
    return GradingError(
        "there are no submissions here",
        where=source,
        expected=f"notebooks in the layout {layout.name!r}",
        got=f"{len(files)} files" + (f", such as {files[0].path}" if files else ""),
        todo=OPTION,
    )


def _is_notebook(path: PurePosixPath) -> bool:
    return path.suffix.lower() == ".ipynb"


class _ByteBudget:
    """Bytes of one student that may still be read, so that many small zip bombs do not add up to a large one."""

    def __init__(self) -> None:
        self.remaining = MAX_STUDENT_BYTES

    def spend(self, count: int) -> None:
        self.remaining -= count
        if self.remaining < 0:
            raise _TooLarge(f"this student's notebooks together are larger than {MAX_STUDENT_BYTES >> 20} MiB")


def _copy_submissions(
    notebooks: Iterable[Owned], times: Times, store: Path
) -> tuple[list[SubmittedFile], list[SubmittedFile]]:
    """Copy the notebook that counts for each student and assignment; return these, and the others with the reason.

    The preferred one counts. If it cannot be copied, the next one does.
    """
    candidates: dict[str, dict[str, list[Candidate]]] = {}
    for file, owner in notebooks:
        submitted = _submitted(file, owner, times)
        candidates.setdefault(submitted.student, {}).setdefault(submitted.slot, []).append((submitted, file))
    chosen: list[SubmittedFile] = []
    extras: list[SubmittedFile] = []
    for _, slots in sorted(candidates.items()):
        budget = _ByteBudget()
        for number, (_, files) in enumerate(sorted(slots.items())):
            if number >= MAX_STUDENT_NOTEBOOKS:
                extras += [replace(file, problem=file.problem or TOO_MANY_NOTEBOOKS) for file, _ in files]
                continue
            first, *others = _copy_first(files, store, budget)
            chosen.append(first)
            extras += others
    return chosen, extras


def _copy_first(candidates: list[Candidate], store: Path, budget: _ByteBudget) -> list[SubmittedFile]:
    """Return the candidates, first the one that counts, which was copied; each of the others with the reason."""
    failed: list[SubmittedFile] = []
    ordered = sorted(candidates, key=lambda candidate: _preference(candidate[0]), reverse=True)
    for position, (submitted, file) in enumerate(ordered):
        copied = _copied(submitted, file, store, budget)
        if copied.problem:
            failed.append(copied)
            continue
        reason = f"{copied.source} counts instead"
        superseded = [replace(other, problem=other.problem or reason) for other, _ in ordered[position + 1 :]]
        return [copied, *failed, *superseded]
    return failed


def _submitted(file: InputFile, owner: Owner, times: Times) -> SubmittedFile:
    """Return a notebook that is not copied yet."""
    return SubmittedFile(
        owner.student,
        owner.name,
        owner.assignment,
        str(file.path),
        submitted=times.get((owner.student, owner.assignment)),
        late=owner.late,
        problem=file.problem,
    )


def _copied(submitted: SubmittedFile, file: InputFile, store: Path, budget: _ByteBudget) -> SubmittedFile:
    if submitted.problem:
        return submitted
    try:
        path, digest = _copy(file, store, budget)
    except _TooLarge as reason:
        return replace(submitted, problem=str(reason))
    except READ_ERRORS as error:
        return replace(submitted, problem=f"it cannot be read: {error}")
    return replace(submitted, path=path, sha256=digest)


def _copy(file: InputFile, store: Path, budget: _ByteBudget) -> tuple[Path, str]:
    digest, size = hashlib.sha256(), 0
    temporary = store / f".incoming-{os.getpid()}"
    try:
        with file.open() as source, _open_for_writing(temporary) as target:
            while chunk := source.read(CHUNK):
                size += len(chunk)
                if size > MAX_BYTES:
                    raise _TooLarge(
                        f"it is larger than {MAX_BYTES >> 20} MiB; clear its outputs "
                        "(Edit > Clear Outputs of All Cells) and save it"
                    )
                budget.spend(len(chunk))
                digest.update(chunk)
                _write(target, chunk, store)
        path = store / f"{digest.hexdigest()}.ipynb"
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path, digest.hexdigest()


def _write(target: IO[bytes], chunk: bytes, store: Path) -> None:
    try:
        target.write(chunk)
    except OSError as error:  # a full disk is not the fault of the submission
        raise _unwritable(store, error) from None


def _open_for_writing(path: Path) -> IO[bytes]:
    try:
        return path.open("wb")
    except OSError as error:
        raise _unwritable(path.parent, error) from None


def _unwritable(store: Path, error: OSError) -> OutputError:
    return OutputError(
        "the submissions cannot be copied",
        where=store,
        got=error.strerror or str(error),
        todo="choose another folder with --out, or free space in this one",
    )


def _preference(file: SubmittedFile) -> tuple[bool, bool, list[str | int], str]:
    stem = PurePosixPath(file.source).stem
    pieces = re.split(r"([0-9]{1,9})", stem)  # words and numbers alternate
    natural = [int(piece) if position % 2 else piece for position, piece in enumerate(pieces)]
    # `P1-2` is a student's second submission, so larger numbers are preferred
    return not file.problem, stem.upper() == file.assignment.upper(), natural, file.source


def _without_notebook(owned: Iterable[Owned]) -> list[SubmittedFile]:
    """Return a result for every student who submitted files, but no notebook."""
    paths: dict[str, list[PurePosixPath]] = {}
    names: dict[str, str] = {}
    for file, owner in owned:
        paths.setdefault(owner.student, []).append(file.path)
        names[owner.student] = owner.name
    return [
        SubmittedFile(student, names[student], source=str(files[0]), problem=_no_notebook(files))
        for student, files in paths.items()
        if not any(map(_is_notebook, files))
    ]


def _no_notebook(paths: list[PurePosixPath]) -> str:
    return f"there is no notebook among {', '.join(map(str, paths[:3]))}" + (" …" if len(paths) > 3 else "")


def _submission_times(owned: Iterable[Owned]) -> Times:
    """Return the times that nbgrader stores in `[submitted/]STUDENT/ASSIGNMENT/timestamp.txt`, and nowhere else."""
    times = {}
    for file, owner in owned:
        parts = file.path.parts[1:] if file.path.parts[0] == SUBMITTED else file.path.parts
        documented = parts == (owner.student, owner.assignment, TIMESTAMP)
        if documented and not file.problem and (time := _read_time(file)):
            times[owner.student, owner.assignment] = time
    return times


def _read_time(file: InputFile) -> datetime | None:
    try:
        with file.open() as stream:
            text = stream.read(MAX_TIMESTAMP_BYTES).decode("ascii").strip()
        return parse_time(text)
    except READ_ERRORS:
        return None


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
