"""The layouts of submissions: who submitted what, derived from a file's path alone.

Paths are relative and consist of plain names; the caller has made sure of that (see `files`).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from mlhood.errors import GradingError, nearest

SUBMITTED = "submitted"
CLONES = "-submissions"  # what `gh classroom clone` makes
TIMESTAMP = "timestamp.txt"
MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_[a-z]+_?")
CANVAS = re.compile(r"(?P<name>[^_]+)(?P<late>_LATE)?_(?P<user>\d+)_(?P<submission>\d+)_(?P<file>.+)")
ASSIGNMENT = re.compile(r"(?<![A-Za-z0-9])([Pp]\d{1,2})(?![A-Za-z0-9])")


@dataclass(frozen=True)
class Owner:
    """Whose file it is: the student's id and name, and the assignment if the path contains it.

    `late` is whether the layout marks it as late; None if the layout marks none.
    """

    student: str
    name: str = ""
    assignment: str = ""
    late: bool | None = None


FindOwner = Callable[[PurePosixPath], Owner | None]


@dataclass(frozen=True)
class Layout:
    """A layout: its name, and the owner of a path, or None for a path that is not a student's."""

    name: str
    owner: FindOwner


def assignment_in(path: PurePosixPath) -> str:
    """Return the assignment in a file's name (`P1` in `P1.ipynb`, `p1-2.ipynb`, `ada_P1.ipynb`), else nothing."""
    match = ASSIGNMENT.search(path.stem)
    return match[1].upper() if match else ""


def nbgrader(path: PurePosixPath) -> Owner | None:
    """nbgrader: `[submitted/]STUDENT/ASSIGNMENT/...`."""
    parts = path.parts[1:] if path.parts[0] == SUBMITTED else path.parts
    return Owner(parts[0], assignment=parts[1]) if len(parts) >= 3 else None


def moodle(shared_names: Collection[str]) -> FindOwner:
    """Moodle's download: a folder `Full Name_12345_assignsubmission_file_` for each student.

    The number changes with every assignment, so a student is identified by name, and by name and number only where
    several share the name.
    """

    def owner(path: PurePosixPath) -> Owner | None:
        match = _moodle_folder(path)
        if match is None:
            return None
        name = match["name"]
        student = f"{name} ({match['number']})" if name in shared_names else name
        return Owner(student, name, assignment_in(path))

    return owner


def _moodle_folder(path: PurePosixPath) -> re.Match[str] | None:
    """Return the match of the top folder: the student chooses what is in it."""
    return MOODLE.fullmatch(path.parts[0]) if len(path.parts) > 1 else None


def _shared_names(paths: Iterable[PurePosixPath]) -> set[str]:
    numbers: dict[str, str] = {}
    matches = filter(None, map(_moodle_folder, paths))
    return {m["name"] for m in matches if numbers.setdefault(m["name"], m["number"]) != m["number"]}


def canvas(path: PurePosixPath) -> Owner | None:
    """Canvas's download: `lastfirst_[LATE_]USER_SUBMISSION_FILE`; USER is the column `ID` of its gradebook."""
    match = CANVAS.fullmatch(path.name)
    if not match:
        return None
    assignment = assignment_in(PurePosixPath(match["file"]))
    return Owner(match["user"], match["name"], assignment, late=bool(match["late"]))


def flat(path: PurePosixPath) -> Owner | None:
    """A folder of notebooks: the file's name without the assignment is the student's id."""
    student = ASSIGNMENT.sub("", path.stem).strip(" _-.") or path.stem
    return Owner(student, assignment=assignment_in(path)) if len(path.parts) == 1 else None


def classroom(prefix: str) -> FindOwner:
    """GitHub Classroom's clones: a folder for each student, named after the assignment's prefix and the student."""

    def owner(path: PurePosixPath) -> Owner | None:
        parts = path.parts[1:] if path.parts[0].endswith(CLONES) else path.parts
        if len(parts) < 2:
            return None
        return Owner(parts[0].removeprefix(prefix) or parts[0], assignment=assignment_in(path))

    return owner


def choose_layout(paths: Collection[PurePosixPath], *, title: str, hint: str | None = None) -> Layout:
    """Return the layout of these paths.

    Args:
        title: Name of the folder or archive.
        hint: Name of the layout, by default guessed; `classroom:SLUG` also gives the prefix of the students' names.

    Raises:
        GradingError: There is no layout of that name.
    """
    layouts: dict[str, FindOwner] = {
        "moodle": moodle(_shared_names(paths)),
        "canvas": canvas,
        "nbgrader": nbgrader,
        "flat": flat,
    }
    name, _, slug = (hint or _guess(paths, title)).partition(":")
    if name == "classroom":
        return Layout(name, classroom(f"{slug}-" if slug else _prefix(paths, title)))
    if name not in layouts:
        raise GradingError(
            "there is no such layout of submissions",
            where=name,
            expected=f"one of {', '.join([*layouts, 'classroom', 'classroom:SLUG'])}",
            todo=nearest(name, [*layouts, "classroom"]) or "leave --format-hint out to have the layout guessed",
        )
    return Layout(name, layouts[name])


def _guess(paths: Collection[PurePosixPath], title: str) -> str:
    """Return the layout of most files and folders at the top, which the platform names, not a student."""
    notebooks = [path for path in paths if path.suffix.lower() == ".ipynb"] or paths
    # of each, the notebook that is nested least
    tops = {path.parts[0]: path for path in sorted(notebooks, key=lambda path: len(path.parts), reverse=True)}

    def most(predicate: Callable[[PurePosixPath], object]) -> bool:
        return 2 * sum(map(bool, map(predicate, tops.values()))) > len(tops)

    if title.endswith(CLONES) or most(lambda path: path.parts[0].endswith(CLONES)):
        return "classroom"
    if title == SUBMITTED or most(lambda path: path.parts[0] == SUBMITTED):
        return "nbgrader"
    if most(_moodle_folder):
        return "moodle"
    if most(lambda path: len(path.parts) == 1):
        return "canvas" if most(lambda path: CANVAS.fullmatch(path.name)) else "flat"
    return "nbgrader" if most(lambda path: len(path.parts) == 3) else "classroom"


def _prefix(paths: Collection[PurePosixPath], title: str) -> str:
    """Return what `gh classroom clone` puts before the students' names: `p1-submissions` holds `p1-ada`, `p1-bob`."""
    tops = {path.parts[0] for path in paths if len(path.parts) > 1}
    slugs = [folder.removesuffix(CLONES) for folder in [title, *tops] if folder.endswith(CLONES)]
    if slugs:
        return f"{slugs[0]}-"
    if len(tops) < 2:
        return ""
    common = os.path.commonprefix([min(tops), max(tops)])  # noqa: RUF071 (of names, not of paths)
    return common[: common.rfind("-") + 1]
