"""A submission with the course's own cells as the master has them, whatever became of them in the student's hands.

1. A given, check or result cell is the course's own if it holds what the master's does, up to comments and layout. A
   label does not make it so.
2. Such cells stand in the order of the master, each after the solution cells that it follows there; those that are
   missing, changed or elsewhere are put in. So deleting, editing, copying or moving them changes nothing.
3. Everything else is the student's: solution cells, all copies of them, cells that were added, and what became of a
   cell of the course that was changed. It runs where it stands, and nothing in it is trusted.

Solution cells are known by name (nbgrader's `grade_id`, or the cell's id), the course's own by name and content. Where
names are lost, by an editor or a tool that strips notebooks, content is enough.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.master import OPEN, SOLUTION, MasterCell, cells_of
from mlhood.grading.notebooks.notebook import label

FOR_THE_STUDENT = ("check", "result")  # cells that only tell the student something: no check asks what they make
MAX_CHARACTERS = 4_000  # of a cell that is compared by its syntax; the course's own have 15 lines
MAX_SOURCE = 1 << 20  # characters of all cells together: to read a program takes hundreds of bytes for each


@dataclass(frozen=True)
class Part:
    """A cell of the rebuilt notebook.

    Args:
        cell: What is run.
        task: The task whose limits count for it, or empty.
        role: Its role in the master, or empty for a cell that the student has added.
        own: Whether it is the course's own, as the master has it.
        last: Whether its task is judged after it and not before.
    """

    cell: NotebookNode
    task: str = ""
    role: str = ""
    own: bool = False
    last: bool = False


BECAME = {
    "missing": "is missing",
    "turned": "has become a text cell",
    "changed": "was changed",
    "moved": "stands elsewhere than it was given",
    "doubled": "stands there more than once",
}
THEN = {
    ("given", "missing"): ": it runs as it was given",
    ("given", "turned"): ": it runs as it was given",
    ("given", "changed"): ": your version runs first, then the cell as it was given",
    ("given", "moved"): ": it runs in its own place",
    (SOLUTION, "doubled"): ": all of them run, in their order",
}


@dataclass(frozen=True)
class Change:
    """What became of a cell of the master in a submission: one of `BECAME`."""

    cell: MasterCell
    name: str
    kind: str

    @property
    def text(self) -> str:
        """In words, with what is run."""
        return f"{self.name} {BECAME[self.kind]}{THEN.get((self.cell.role, self.kind), '')}"


@dataclass(frozen=True)
class Rebuilt:
    """A notebook to run, and how it differs from the one that was handed in."""

    parts: tuple[Part, ...]
    changes: tuple[Change, ...]


def rebuild(notebook: NotebookNode, project: Project) -> Rebuilt:
    """The notebook with the course's own cells as given. The notebook itself stays as it is."""
    found = _Found(notebook, cells_of(project))
    kept = found.in_place()
    return Rebuilt(tuple(found.rebuilt(kept)), tuple(found.changes(kept)))


def as_it_stands(notebook: NotebookNode, project: Project) -> Rebuilt:
    """The notebook cell by cell, for its author's own eyes. Told is only which cells of a task are gone."""
    found = _Found(notebook, cells_of(project))
    kept = {*found.claimed}
    parts = (found.part(at, kept) for at in range(len(notebook.cells)))
    gone = (one for one in found.changes(kept) if one.kind in ("missing", "turned") and one.cell.role != "given")
    return Rebuilt(tuple(parts), tuple(gone))


def judging_points(parts: tuple[Part, ...], project: Project) -> dict[int, list[str]]:
    """After which part (index, or -1 for at once) which tasks are judged: after the last cell of each, in order."""
    points: dict[int, list[str]] = {}
    reached = -1
    for task in project.tasks:
        reached = max([reached, *(at for at, part in enumerate(parts) if part.last and part.task == task.id)])
        points.setdefault(reached, []).append(task.id)
    return points


def untouched(notebook: NotebookNode, project: Project) -> bool:
    """Whether all code is as it was given."""
    given = {fingerprint(one.source) for one in cells_of(project)}
    written = {at for at, cell in enumerate(notebook.cells) if cell.cell_type == "code" and cell.source.strip()}
    return all(text in given for at, text in _fingerprints(notebook.cells).items() if at in written)


def fingerprint(source: str) -> str:
    """A hash that cells share which differ in comments and layout only."""
    text = "\n".join(line.rstrip() for line in source.strip().split("\n"))
    return hashlib.sha256(_syntax(text).encode("utf-8", "replace")).hexdigest()


def _fingerprints(cells: list[NotebookNode]) -> dict[int, str]:
    """Of all code cells, by their index. Cells beyond what a notebook may hold are like no other."""
    found: dict[int, str] = {}
    characters = 0
    for at, cell in enumerate(cells):
        if cell.cell_type == "code":
            characters += len(cell.source)
            found[at] = fingerprint(cell.source) if characters <= MAX_SOURCE else f"unread {at}"
    return found


def _syntax(text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in a student's strings
            return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text  # magics are no Python


class _Found:
    """Which cell of a notebook is which of the master's; cells go by their index, those of the master by theirs.

    Attributes:
        named: For every cell that has the name of one of the master's, which.
        alike: The course's own cells by their fingerprint.
        held: Those that are there as given: where.
        edited: Those that are there by name only: where.
        solved: The first cell of each solution's name.
    """

    def __init__(self, notebook: NotebookNode, master: tuple[MasterCell, ...]) -> None:
        self.cells: list[NotebookNode] = notebook.cells
        self.master = tuple(one for one in master if one.role != OPEN)
        self.prints = _fingerprints(self.cells)
        self.named = self._names([*self.prints])
        self.turned = {*self._names([at for at in range(len(self.cells)) if at not in self.prints]).values()}
        self.alike: dict[str, list[int]] = {}
        for which, one in enumerate(self.master):
            if one.own:
                self.alike.setdefault(fingerprint(one.source), []).append(which)
        self.held = self._held()
        self.own_at = {at: which for which, at in self.held.items()}
        self.edited: dict[int, int] = {}
        self.solved: dict[int, int] = {}
        for at, which in sorted(self.named.items()):
            if at not in self.own_at and which not in self.held:
                (self.edited if self.master[which].own else self.solved).setdefault(which, at)

    @property
    def claimed(self) -> dict[int, int]:
        """Where the course's own cells stand, as given or not."""
        return self.held | self.edited

    def _names(self, cells: list[int]) -> dict[int, int]:
        """By `grade_id`, else by the cell's id, else by the label: the next solution of its task."""
        known = {one.name: which for which, one in enumerate(self.master)}
        named: dict[int, int] = {}
        for at in cells:
            which = next((known[name] for name in _names_of(self.cells[at]) if name in known), None)
            if which is not None:
                named[at] = which
        taken = {*named.values()}
        for at in cells:
            found = None if at in named else label(self.cells[at])
            wanted = (found.task, SOLUTION) if found and found.role == SOLUTION else None
            of_task = [which for which, one in enumerate(self.master) if (one.task, one.role) == wanted]
            if of_task:
                named[at] = next((which for which in of_task if which not in taken), of_task[-1])
                taken.add(named[at])
        return named

    def _held(self) -> dict[int, int]:
        """By name and content, else by content."""
        held: dict[int, int] = {}
        for at, which in sorted(self.named.items()):
            if which in self.alike.get(self.prints[at], []):
                held.setdefault(which, at)
        taken = {*held.values()}
        for at, text in self.prints.items():
            free = [which for which in self.alike.get(text, []) if which not in held]
            if free and at not in taken:
                held[free[0]] = at
        return held

    def window(self, which: int) -> tuple[int, int]:
        """Between which two cells one of the course's own belongs: after all solutions before it, before the next."""
        low = max((at for other, at in self.solved.items() if other < which), default=-1)
        later = [at for other, at in self.solved.items() if other > which and at > low]
        return low, min(later, default=len(self.cells))

    def in_place(self) -> set[int]:
        """The course's own cells that stand in their window and in their order: as many of them as can be."""
        fitting = []
        for which, at in sorted(self.claimed.items()):
            low, high = self.window(which)
            if low < at < high:
                fitting.append((which, at))
        return _longest_rising(fitting)

    def rebuilt(self, kept: set[int]) -> Iterator[Part]:
        """All cells in their new order. What is put in comes as late as it can, so that all it may need is there."""
        put_in: dict[int, list[int]] = {}
        following = len(self.cells)
        for which in reversed(range(len(self.master))):
            if which in kept:
                following = self.claimed[which]
            elif self.master[which].own:
                put_in.setdefault(min(following, self.window(which)[1]), []).insert(0, which)
        for at in range(len(self.cells)):
            yield from map(self._given, put_in.get(at, []))
            if at not in self.own_at:
                yield self.part(at, kept)
            which = self.own_at.get(at, self.named.get(at, -1))
            if which in kept and self.claimed[which] == at:
                yield self._given(which)
        yield from map(self._given, put_in.get(len(self.cells), []))

    def _given(self, which: int) -> Part:
        """One of the course's own cells; the notebook's, if it is the same to the letter."""
        one = self.master[which]
        there = self.cells[self.held[which]] if which in self.held else None
        cell = there if there and there.source == one.source else new_code_cell(one.source)
        return Part(cell, one.task, one.role, own=True, last=True)

    def part(self, at: int, kept: set[int]) -> Part:
        """A cell of the notebook as it stands."""
        cell = self.cells[at]
        if at in self.own_at:
            one = self.master[self.own_at[at]]
            return Part(cell, one.task, one.role, own=True, last=True)
        copied = [self.master[one] for one in self.alike.get(self.prints.get(at, ""), [])]
        if copied and copied[0].role in FOR_THE_STUDENT:
            return Part(cell, copied[0].task, copied[0].role, own=True)
        if at not in self.named:
            return Part(cell)
        which = self.named[at]
        one = self.master[which]
        if one.own:
            return Part(cell, one.task, last=which in kept and self.edited.get(which) == at)
        return Part(cell, one.task, one.role, last=self.solved.get(which) == at)

    def changes(self, kept: set[int]) -> Iterator[Change]:
        """What became of the master's cells, in its order."""
        copies = Counter(self.named.values())
        for which, one in enumerate(self.master):
            name = self._called(one)
            if which in self.edited:
                yield Change(one, name, "changed")
            elif which in self.held and which not in kept:
                yield Change(one, name, "moved")
            elif which not in {*self.held, *self.solved} and (one.own or self.named):  # solutions are known by name
                yield Change(one, name, "turned" if which in self.turned else "missing")
            if copies[which] > 1:
                yield Change(one, name, "doubled")

    def _called(self, one: MasterCell) -> str:
        alone = sum((other.task, other.role) == (one.task, one.role) for other in self.master) == 1
        return f"the {one.role} cell of {one.task}" if alone else f"the {one.role} cell `{one.name}` of {one.task}"


def _names_of(cell: NotebookNode) -> tuple[str, str]:
    grader = cell.metadata.get("nbgrader")
    return str(grader.get("grade_id") if isinstance(grader, dict) else ""), str(cell.get("id", ""))


def _longest_rising(pairs: list[tuple[int, int]]) -> set[int]:
    """Of pairs in the order of their first numbers: the first numbers of a longest run of rising second ones."""
    ends: list[int] = []
    runs: list[list[int]] = []
    for first, second in pairs:
        length = bisect_left(ends, second)
        run = [*(runs[length - 1] if length else []), first]
        ends[length:], runs[length:] = [second, *ends[length + 1 :]], [run, *runs[length + 1 :]]
    return set(runs[-1]) if runs else set()
