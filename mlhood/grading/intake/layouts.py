"""The layouts of submissions: who submitted what, derived from a file's path alone by a pattern for each layout.

Paths are relative and consist of plain names; the caller has made sure of that (see `files`).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

from mlhood.errors import GradingError, nearest

SUBMITTED = "submitted"
CLONES = "-submissions"  # what `gh classroom clone` makes
# `file` is what the assignment is found in, if it is not the whole name
PATTERNS = {
    "nbgrader": r"(submitted/)?+(?P<student>[^/]+)/(?P<assignment>[^/]+)/.+",
    "classroom": r"([^/]*-submissions/)?+(?P<student>[^/]+)/.+",
    # the number changes with every assignment, so a student is identified by name
    "moodle": r"(?P<student>(?P<name>[^/]+))_(?P<number>\d+)_assignsubmission_[a-z]+_?/.+",
    # the first number is the column `ID` of Canvas's gradebook
    "canvas": r"(.*/)?(?P<name>[^_/]+)(?P<late>_LATE)?_(?P<student>\d+)_\d+_(?P<file>[^/]+)",
    "flat": r"(?P<student>[^/]+)",
}
LAYOUTS = {name: re.compile(pattern, re.DOTALL) for name, pattern in PATTERNS.items()}
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


@dataclass(frozen=True)
class Layout:
    """A layout: its name, the prefix of the students' folders, and the names that several students of Moodle share."""

    name: str
    prefix: str = ""
    shared: Collection[str] = ()

    def owner(self, path: PurePosixPath) -> Owner | None:
        """Return the owner of a path, or None for a path that is not a student's."""
        match = LAYOUTS[self.name].fullmatch(str(path))
        if match is None:
            return None
        parts = match.groupdict()
        student, late = parts["student"], parts.get("late")
        if self.name == "flat":
            student = ASSIGNMENT.sub("", path.stem).strip(" _-.") or path.stem
        elif student in self.shared:
            student = f"{student} ({parts['number']})"
        found = ASSIGNMENT.search(PurePosixPath(parts.get("file") or path.name).stem)
        assignment = parts.get("assignment") or (found[1].upper() if found else "")
        marked = bool(late) if "late" in parts else None
        return Owner(student.removeprefix(self.prefix) or student, parts.get("name") or "", assignment, marked)


def choose_layout(paths: Collection[PurePosixPath], *, title: str, name: str | None = None) -> Layout:
    """Return the layout of these paths.

    Args:
        title: Name of the folder or archive.
        name: Name of the layout; `classroom:SLUG` also gives the prefix of the students' names. By default the layout
            is the one whose marker all notebooks have at the top of their paths, which the platform names.

    Raises:
        GradingError: There is no layout of that name, or the notebooks have no common marker.
    """
    chosen, _, slug = (name or _marked_layout(paths, title)).partition(":")
    if chosen not in LAYOUTS:
        raise GradingError(
            "there is no such layout of submissions",
            where=chosen,
            expected=f"one of {', '.join([*LAYOUTS, 'classroom:SLUG'])}",
            todo=nearest(chosen, LAYOUTS) or OPTION,
        )
    if chosen == "classroom":
        return Layout(chosen, prefix=f"{slug}-" if slug else _prefix(paths, title))
    return Layout(chosen, shared=_shared_names(paths) if chosen == "moodle" else ())


def _shared_names(paths: Collection[PurePosixPath]) -> set[str]:
    numbers: dict[str, str] = {}
    matches = filter(None, (LAYOUTS["moodle"].fullmatch(str(path)) for path in paths))
    return {m["name"] for m in matches if numbers.setdefault(m["name"], m["number"]) != m["number"]}


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
        return "canvas" if LAYOUTS["canvas"].fullmatch(path.name) else "flat"
    return _folder_marker(path.parts[0]) or ("moodle" if LAYOUTS["moodle"].fullmatch(str(path)) else "")


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
