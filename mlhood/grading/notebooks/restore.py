"""A submission with its locked cells restored: the course's own cells run as the source notebook has them.

1. A given, check or result cell is intact if it has the content of the source notebook's, up to comments and layout; a
   label alone proves nothing.
2. Intact cells run in the order of the source notebook, each after the solution cells that it follows there; missing,
   changed and moved ones are inserted. So deleting, editing, copying or moving them has no effect.
3. All other cells are the student's: solution cells and their copies, added cells, and edited cells of the course. They
   run where they are, and nothing in them is trusted.

Solution cells are recognized by name (nbgrader's `grade_id`, or the cell's id), locked cells by name and content. If an
editor or a tool that strips notebooks has removed the names, the content is enough.
"""

from __future__ import annotations

import ast
import hashlib
import warnings
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import cell_names, label
from mlhood.grading.notebooks.source_notebook import OPEN, SOLUTION, SourceCell, project_cells

FEEDBACK_ROLES = ("check", "result")  # cells that only show something to the student: no check uses what they define
UNTOUCHED = "nothing has been written yet"
MAX_PARSED_CHARACTERS = 4_000  # of a cell that is compared by its syntax tree; the course's own have 15 lines
MAX_SOURCE_CHARACTERS = 1 << 20  # of all cells together: parsing takes hundreds of bytes of memory for each


@dataclass(frozen=True)
class RestoredCell:
    """A cell of the restored notebook.

    Args:
        node: The cell to run.
        task: The task whose limits hold for it, or empty.
        role: Its role in the source notebook, or empty for a cell that the student added or changed.
        intact: Whether it is a locked cell of the course with the source notebook's content.
        delays_grading: Whether its task is graded only after it.
    """

    node: NotebookNode
    task: str = ""
    role: str = ""
    intact: bool = False
    delays_grading: bool = False


KINDS = {
    "missing": "is missing",
    "not code": "has become a text cell",
    "changed": "was changed",
    "moved": "is in another place than in the original",
    "duplicated": "exists more than once",
}
CONSEQUENCES = {
    ("given", "missing"): ": it runs as it was given",
    ("given", "not code"): ": it runs as it was given",
    ("given", "changed"): ": your version runs first, then the cell as it was given",
    ("given", "moved"): ": it runs in its original place",
    (SOLUTION, "duplicated"): ": all copies run, in their order",
}


@dataclass(frozen=True)
class CellChange:
    """How a submission differs from the source notebook in one of its cells; `kind` is one of `KINDS`."""

    cell: SourceCell
    name: str
    kind: str

    @property
    def text(self) -> str:
        """The change in words, and its consequence for the run."""
        return f"{self.name} {KINDS[self.kind]}{CONSEQUENCES.get((self.cell.role, self.kind), '')}"


@dataclass(frozen=True)
class RestoredNotebook:
    """The cells to run, and how the submission differs from the source notebook."""

    cells: tuple[RestoredCell, ...]
    changes: tuple[CellChange, ...]


def restore(notebook: NotebookNode, project: Project) -> RestoredNotebook:
    """Return the notebook with the course's locked cells restored. The notebook itself is not modified."""
    matching = _Matching(notebook, project_cells(project))
    matching.keep_cells_in_order()
    return RestoredNotebook(tuple(matching.restored_cells()), tuple(matching.changes()))


def as_submitted(notebook: NotebookNode, project: Project) -> RestoredNotebook:
    """Return the notebook's own cells in their order, for its author. Changes are only the missing cells of tasks."""
    matching = _Matching(notebook, project_cells(project))
    for entry in matching.source_notebook:
        entry.kept = entry.locked_match is not None
    cells = (matching.submitted_cell(cell) for cell in matching.cells)
    missing = (
        change
        for change in matching.changes()
        if change.kind in ("missing", "not code") and change.cell.role != "given"
    )
    return RestoredNotebook(tuple(cells), tuple(missing))


def grading_points(cells: tuple[RestoredCell, ...], project: Project) -> dict[int, list[str]]:
    """Return the tasks to grade after each cell, by its index: each after its last cell, and in their order.

    Tasks without cells before the first task that has some are graded at index -1, before all cells.
    """
    points: dict[int, list[str]] = {}
    last = -1
    for task in project.tasks:
        last = max([last, *(i for i, cell in enumerate(cells) if cell.delays_grading and cell.task == task.id)])
        points.setdefault(last, []).append(task.id)
    return points


def is_unmodified(notebook: NotebookNode, project: Project) -> bool:
    """Whether all code is as it was given."""
    return not any(own_cells(notebook, {fingerprint(cell.source) for cell in project_cells(project)}))


def own_cells(notebook: NotebookNode, given: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield the position, from 1, and the source of each code cell whose fingerprint is not among those given.

    Labels do not matter: one that says `given` may be forged.
    """
    for position, found in enumerate(_fingerprints(notebook.cells), start=1):
        source = notebook.cells[position - 1].source
        if found and found not in given and source.strip():
            yield position, source


def fingerprint(source: str) -> str:
    """Return a hash that cells share which differ only in comments and layout."""
    text = "\n".join(line.rstrip() for line in source.strip().split("\n"))
    return hashlib.sha256(_syntax(text).encode("utf-8", "replace")).hexdigest()


def _fingerprints(cells: list[NotebookNode]) -> list[str]:
    """Return the fingerprint of every code cell, empty for others. Cells beyond the limit of characters match none."""
    fingerprints = []
    characters = 0
    for i, cell in enumerate(cells):
        if cell.cell_type != "code":
            fingerprints.append("")
            continue
        characters += len(cell.source)
        fingerprints.append(fingerprint(cell.source) if characters <= MAX_SOURCE_CHARACTERS else f"not parsed: {i}")
    return fingerprints


def _syntax(text: str) -> str:
    if len(text) > MAX_PARSED_CHARACTERS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in a student's strings
            return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text  # cells with magics, for example


@dataclass(eq=False)
class _SubmittedCell:
    """A cell of the submission.

    Attributes:
        index: Its position in the notebook.
        node: The cell.
        fingerprint: Empty for a cell that is not code.
        named: The source notebook's cell that has its name.
        intact: The source notebook's locked cell that it is, by content.
    """

    index: int
    node: NotebookNode
    fingerprint: str
    named: _SourceEntry | None = None
    intact: _SourceEntry | None = None


@dataclass(eq=False)
class _SourceEntry:
    """A cell of the source notebook, and its matches in the submission.

    Attributes:
        index: Its position among the source notebook's cells.
        cell: The cell.
        fingerprint: Empty for a solution cell.
        intact: The submitted cell that has its content.
        changed: Without an intact one, the first submitted cell that has its name: an edited cell, or a solution.
        names: Number of submitted code cells that have its name.
        not_code: Whether a submitted cell that is not code has its name.
        kept: Whether its match runs where it is in the submission.
    """

    index: int
    cell: SourceCell
    fingerprint: str
    intact: _SubmittedCell | None = None
    changed: _SubmittedCell | None = None
    names: int = 0
    not_code: bool = False
    kept: bool = False

    @property
    def locked_match(self) -> _SubmittedCell | None:
        """The submitted cell in the place of this locked cell, intact or edited."""
        return (self.intact or self.changed) if self.cell.locked else None

    @property
    def solution(self) -> _SubmittedCell | None:
        """The first submitted cell of this solution."""
        return None if self.cell.locked else self.changed


class _Matching:
    """Which cells of a submission are which of the source notebook's."""

    def __init__(self, notebook: NotebookNode, source_notebook: tuple[SourceCell, ...]) -> None:
        fingerprints = _fingerprints(notebook.cells)
        self.cells = [_SubmittedCell(i, node, fingerprints[i]) for i, node in enumerate(notebook.cells)]
        self.code = [cell for cell in self.cells if cell.fingerprint]
        self.source_notebook = [
            _SourceEntry(i, cell, fingerprint(cell.source) if cell.locked else "")
            for i, cell in enumerate(cell for cell in source_notebook if cell.role != OPEN)
        ]
        self.by_content: dict[str, list[_SourceEntry]] = {}
        for entry in self.source_notebook:
            if entry.cell.locked:
                self.by_content.setdefault(entry.fingerprint, []).append(entry)
        self._match_names()
        self._match_content()
        for cell in self.code:
            entry = cell.named
            if entry and not cell.intact and not entry.intact and not entry.changed:
                entry.changed = cell

    def _match_names(self) -> None:
        for cell, entry in self._named(self.code):
            cell.named = entry
            entry.names += 1
        for _, entry in self._named([cell for cell in self.cells if not cell.fingerprint]):
            entry.not_code = True

    def _named(self, cells: list[_SubmittedCell]) -> list[tuple[_SubmittedCell, _SourceEntry]]:
        """Match cells by `grade_id`, else by the cell's id, else by the label: to the next solution of its task."""
        by_name = {entry.cell.name: entry for entry in self.source_notebook}
        pairs, unnamed = [], []
        for cell in cells:
            entry = next((by_name[name] for name in cell_names(cell.node) if name in by_name), None)
            if entry:
                pairs.append((cell, entry))
            else:
                unnamed.append(cell)
        taken = {entry.index for _, entry in pairs}
        for cell in unnamed:
            cell_label = label(cell.node)
            if cell_label is None or cell_label.role != SOLUTION:
                continue
            solutions = [
                entry
                for entry in self.source_notebook
                if (entry.cell.task, entry.cell.role) == (cell_label.task, SOLUTION)
            ]
            if solutions:
                entry = next((entry for entry in solutions if entry.index not in taken), solutions[-1])
                taken.add(entry.index)
                pairs.append((cell, entry))
        return pairs

    def _match_content(self) -> None:
        """Match intact cells by name and content, the remaining ones by content."""
        for cell in self.code:
            entry = cell.named
            if entry and entry.fingerprint == cell.fingerprint and not entry.intact:
                entry.intact, cell.intact = cell, entry
        for cell in self.code:
            if not cell.intact:
                same = self.by_content.get(cell.fingerprint, [])
                entry = next((entry for entry in same if not entry.intact), None)
                if entry:
                    entry.intact, cell.intact = cell, entry

    def _window(self, entry: _SourceEntry) -> tuple[int, int]:
        """Return the positions between which a locked cell belongs: after all solutions before it, before the next."""
        solutions = [(other.index, other.solution.index) for other in self.source_notebook if other.solution]
        low = max((i for order, i in solutions if order < entry.index), default=-1)
        high = min((i for order, i in solutions if order > entry.index and i > low), default=len(self.cells))
        return low, high

    def keep_cells_in_order(self) -> None:
        """Keep as many locked cells where they are as are in their window and in the source notebook's order."""
        in_window = []
        for entry in self.source_notebook:
            low, high = self._window(entry)
            if entry.locked_match and low < entry.locked_match.index < high:
                in_window.append((entry, entry.locked_match.index))
        for i in longest_increasing_subsequence([index for _, index in in_window]):
            in_window[i][0].kept = True

    def restored_cells(self) -> Iterator[RestoredCell]:
        """Yield all cells in their new order; locked cells are inserted late, so that all they may need is defined."""
        inserted: list[list[_SourceEntry]] = [[] for _ in range(len(self.cells) + 1)]
        following = len(self.cells)
        for entry in reversed(self.source_notebook):
            if entry.kept and entry.locked_match:
                following = entry.locked_match.index
            elif entry.cell.locked:
                inserted[min(following, self._window(entry)[1])].insert(0, entry)
        for cell in self.cells:
            yield from map(self._restored_cell, inserted[cell.index])
            if not cell.intact:
                yield self.submitted_cell(cell)
            entry = cell.intact or cell.named
            if entry and entry.kept and entry.locked_match is cell:
                yield self._restored_cell(entry)
        yield from map(self._restored_cell, inserted[-1])

    def _restored_cell(self, entry: _SourceEntry) -> RestoredCell:
        """Return a locked cell of the course; the submission's own node, if it has exactly the same source."""
        source = entry.cell.source
        same = entry.intact and entry.intact.node.source == source
        node = entry.intact.node if entry.intact and same else new_code_cell(source)
        return RestoredCell(node, entry.cell.task, entry.cell.role, intact=True, delays_grading=True)

    def submitted_cell(self, cell: _SubmittedCell) -> RestoredCell:
        """Return a cell of the submission as it is."""
        node = cell.node
        if cell.intact:
            source_notebook = cell.intact.cell
            return RestoredCell(node, source_notebook.task, source_notebook.role, intact=True, delays_grading=True)
        originals = self.by_content.get(cell.fingerprint, [])
        if originals and originals[0].cell.role in FEEDBACK_ROLES:
            return RestoredCell(node, originals[0].cell.task, originals[0].cell.role, intact=True)
        if not cell.named:
            return RestoredCell(node)
        entry, first = cell.named, cell.named.changed is cell
        if entry.cell.locked:
            return RestoredCell(node, entry.cell.task, delays_grading=entry.kept and first)
        return RestoredCell(node, entry.cell.task, entry.cell.role, delays_grading=first)

    def changes(self) -> Iterator[CellChange]:
        """Yield the differences between the submission and the source notebook, in the source notebook's order."""
        any_names = any(entry.names for entry in self.source_notebook)
        for entry in self.source_notebook:
            name = self._name(entry.cell)
            if entry.cell.locked and entry.changed:
                yield CellChange(entry.cell, name, "changed")
            elif entry.intact and not entry.kept:
                yield CellChange(entry.cell, name, "moved")
            elif not entry.intact and not entry.changed and (entry.cell.locked or any_names):  # solutions need names
                yield CellChange(entry.cell, name, "not code" if entry.not_code else "missing")
            if entry.names > 1:
                yield CellChange(entry.cell, name, "duplicated")

    def _name(self, cell: SourceCell) -> str:
        same = sum((entry.cell.task, entry.cell.role) == (cell.task, cell.role) for entry in self.source_notebook)
        name = "cell" if same == 1 else f"cell `{cell.name}`"
        return f"the {cell.role} {name} of {cell.task}"


def longest_increasing_subsequence(values: list[int]) -> list[int]:
    """Return the indices of a longest strictly increasing subsequence."""
    ends: list[int] = []  # the smallest last value of a subsequence, by its length - 1
    sequences: list[list[int]] = []
    for i, value in enumerate(values):
        length = bisect_left(ends, value)
        sequence = [*(sequences[length - 1] if length else []), i]
        ends[length:], sequences[length:] = [value, *ends[length + 1 :]], [sequence, *sequences[length + 1 :]]
    return sequences[-1] if sequences else []
