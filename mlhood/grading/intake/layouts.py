"""The layouts in which instructors have submissions: who handed in what, told from a file's path alone.

Paths are relative and made of plain names; who reads them has seen to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from mlhood.errors import GradingError

SUBMITTED = "submitted"
CLONES = "-submissions"  # what `gh classroom clone` makes
TIMESTAMP = "timestamp.txt"
MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_[a-z]+_?")
CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<submission>\d+)_(?P<file>.+)")
ASSIGNMENT = re.compile(r"(?<![A-Za-z0-9])([Pp]\d{1,2})(?![A-Za-z0-9])")


@dataclass(frozen=True)
class Owner:
    """Whose file it is: the student's id, name, the assignment if the path tells it, and whether it came late."""

    student: str
    name: str = ""
    assignment: str = ""
    late: bool = False


@dataclass(frozen=True)
class Layout:
    """A way to lay out submissions: its name, and the owner of a path, or None if the path is nobody's."""

    name: str
    owner: Callable[[PurePosixPath], Owner | None]


def named_assignment(path: PurePosixPath) -> str:
    """The assignment that a file's name holds (`P1` in `P1.ipynb`, `p1-2.ipynb`, `ada_P1.ipynb`), else nothing."""
    found = ASSIGNMENT.search(path.stem)
    return found[1].upper() if found else ""


def nbgrader(path: PurePosixPath) -> Owner | None:
    """nbgrader: `[submitted/]STUDENT/ASSIGNMENT/...`."""
    parts = path.parts[1:] if path.parts[0] == SUBMITTED else path.parts
    return Owner(parts[0], assignment=parts[1]) if len(parts) >= 3 else None


def moodle(namesakes: Collection[str]) -> Callable[[PurePosixPath], Owner | None]:
    """Moodle's download: a folder `Full Name_12345_assignsubmission_file_` a student.

    The number is another one in every assignment, so the name is what tells students apart, but for namesakes.
    """

    def owner(path: PurePosixPath) -> Owner | None:
        for part in path.parts[:-1]:
            if found := MOODLE.fullmatch(part):
                name = found["name"]
                student = f"{name} ({found['number']})" if name in namesakes else name
                return Owner(student, name, named_assignment(path))
        return None

    return owner


def _namesakes(paths: Iterable[PurePosixPath]) -> set[str]:
    numbers: dict[str, str] = {}
    found = [match for path in paths for part in path.parts[:-1] if (match := MOODLE.fullmatch(part))]
    return {one["name"] for one in found if numbers.setdefault(one["name"], one["number"]) != one["number"]}


def canvas(path: PurePosixPath) -> Owner | None:
    """Canvas's download: `lastfirst_[LATE_]USER_SUBMISSION_FILE`; USER is the column `ID` of its gradebook."""
    found = CANVAS.fullmatch(path.name)
    if not found:
        return None
    assignment = named_assignment(PurePosixPath(found["file"]))
    return Owner(found["user"], found["name"], assignment, late=bool(found["late"]))


def flat(path: PurePosixPath) -> Owner | None:
    """A folder of notebooks: the file's name without the assignment's is the student's."""
    student = ASSIGNMENT.sub("", path.stem).strip(" _-.") or path.stem
    return Owner(student, assignment=named_assignment(path)) if len(path.parts) == 1 else None


def clones(prefix: str) -> Callable[[PurePosixPath], Owner | None]:
    """GitHub Classroom's clones: a folder a student, after the assignment's prefix."""

    def owner(path: PurePosixPath) -> Owner | None:
        parts = path.parts[1:] if path.parts[0].endswith(CLONES) else path.parts
        if len(parts) < 2:
            return None
        return Owner(parts[0].removeprefix(prefix) or parts[0], assignment=named_assignment(path))

    return owner


def choose(paths: Collection[PurePosixPath], *, title: str, hint: str | None = None) -> Layout:
    """The layout of these paths.

    Args:
        paths: All files found.
        title: Name of the folder or archive that holds them.
        hint: Name of the layout, where it need not be guessed; `classroom:SLUG` also says what comes before the
            students' names.

    Raises:
        GradingError: There is no layout of that name.
    """
    known: dict[str, Callable[[PurePosixPath], Owner | None]] = {
        "moodle": moodle(_namesakes(paths)),
        "canvas": canvas,
        "nbgrader": nbgrader,
        "flat": flat,
    }
    wanted, _, slug = (hint or _guess(paths, title)).partition(":")
    if wanted == "classroom":
        return Layout(wanted, clones(f"{slug}-" if slug else _prefix(paths, title)))
    if wanted not in known:
        raise GradingError(
            "there is no such layout of submissions",
            where=wanted,
            expected=f"one of {', '.join([*known, 'classroom', 'classroom:SLUG'])}",
            todo="leave --format-hint out to have the layout guessed",
        )
    return Layout(wanted, known[wanted])


def _guess(paths: Collection[PurePosixPath], title: str) -> str:
    """What most files look like: what a single student calls a file shall not change how all others are read."""
    notebooks = [path for path in paths if path.suffix.lower() == ".ipynb"] or list(paths)
    if _most(notebooks, lambda path: moodle(())(path) is not None):
        return "moodle"
    if _most(notebooks, lambda path: canvas(path) is not None):
        return "canvas"
    if title.endswith(CLONES) or _most(notebooks, lambda path: path.parts[0].endswith(CLONES)):
        return "classroom"
    if title == SUBMITTED or _most(notebooks, lambda path: path.parts[0] == SUBMITTED):
        return "nbgrader"
    if _most(notebooks, lambda path: len(path.parts) == 1):
        return "flat"
    return "nbgrader" if _most(notebooks, lambda path: len(path.parts) == 3) else "classroom"


def _most(paths: Collection[PurePosixPath], holds: Callable[[PurePosixPath], bool]) -> bool:
    return 2 * sum(map(holds, paths)) > len(paths)


def _prefix(paths: Collection[PurePosixPath], title: str) -> str:
    """What `gh classroom clone` puts before the students' names: `p1-submissions` holds `p1-ada`, `p1-bob`."""
    tops = {path.parts[0] for path in paths if len(path.parts) > 1}
    folders = [title, *tops]
    slugs = [folder.removesuffix(CLONES) for folder in folders if folder.endswith(CLONES)]
    if slugs:
        return f"{slugs[0]}-"
    if len(tops) < 2:
        return ""
    first, last = min(tops), max(tops)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[: first.rfind("-", 0, same) + 1]
