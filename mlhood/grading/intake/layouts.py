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
OPTION = "name the layout: --layout nbgrader, classroom[:SLUG], moodle, canvas or flat"
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
class FileLayout:
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


def choose_layout(paths: Collection[PurePosixPath], *, title: str, name: str | None = None) -> FileLayout:
    """Return the layout of these paths.

    Args:
        title: Name of the folder or archive.
        name: Name of the layout; `classroom:SLUG` also gives the prefix of the students' names. By default the layout
            is the one whose marker all notebooks have at the top of their paths, which the platform names.

    Raises:
        GradingError: There is no layout of that name, or the notebooks have no common marker.
    """
    layouts: dict[str, FindOwner] = {
        "moodle": moodle(_shared_names(paths)),
        "canvas": canvas,
        "nbgrader": nbgrader,
        "flat": flat,
    }
    chosen, _, slug = (name or _marked_layout(paths, title)).partition(":")
    if chosen == "classroom":
        return FileLayout(chosen, classroom(f"{slug}-" if slug else _prefix(paths, title)))
    if chosen not in layouts:
        raise GradingError(
            "there is no such layout of submissions",
            where=chosen,
            expected=f"one of {', '.join([*layouts, 'classroom', 'classroom:SLUG'])}",
            todo=nearest(chosen, [*layouts, "classroom"]) or OPTION,
        )
    return FileLayout(chosen, layouts[chosen])


def _marked_layout(paths: Collection[PurePosixPath], title: str) -> str:
    """Return the layout that the folder's name indicates, else the one that the top of every notebook's path does."""
    notebooks = [path for path in paths if path.suffix.lower() == ".ipynb"] or paths
    markers = {_folder_marker(title)} - {""} or set(map(_marker, notebooks)) or {"flat"}
    if len(markers) > 1 or markers == {""}:
        raise GradingError(
            "the layout of the submissions is ambiguous",
            where=title,
            expected="a folder `submitted` or `...-submissions`, names of Moodle or Canvas, or no folders",
            got=f"notebooks with the marks of {', '.join(sorted(marker or 'no layout' for marker in markers))}",
            todo=OPTION,
        )
    return markers.pop()


def _marker(path: PurePosixPath) -> str:
    """Return the layout that the top of a path indicates; empty for a folder whose name indicates none."""
    if len(path.parts) == 1:
        return "canvas" if CANVAS.fullmatch(path.name) else "flat"
    return _folder_marker(path.parts[0]) or ("moodle" if _moodle_folder(path) else "")


def _folder_marker(name: str) -> str:
    return "nbgrader" if name == SUBMITTED else "classroom" if name.endswith(CLONES) else ""


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
