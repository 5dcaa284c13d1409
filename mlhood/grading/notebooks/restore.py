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


KINDS = {"missing": "is missing", "not code": "has become a text cell", "changed": "was changed"}
AS_GIVEN = ": it runs as it was given"


@dataclass(frozen=True)
class CellChange:
    """How a submission differs from the source notebook in a given cell or a solution; `kind` is one of `KINDS`."""

    cell: SourceCell
    name: str
    kind: str

    @property
    def text(self) -> str:
        """The change in words, and its consequence for the run."""
        consequence = ": your version runs first, then the cell as it was given" if self.kind == "changed" else AS_GIVEN
        return f"{self.name} {KINDS[self.kind]}{consequence if self.cell.locked else ''}"


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
    """Return the notebook's own cells in their order, for its author. Changes are only missing solutions."""
    matching = _Matching(notebook, project_cells(project))
    for entry in matching.entries:
        entry.kept = entry.cell.locked and entry.match is not None
    cells = map(matching.submitted_cell, range(len(notebook.cells)))
    return RestoredNotebook(tuple(cells), tuple(change for change in matching.changes() if not change.cell.locked))


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
class _SourceEntry:
    """A cell of the source notebook, and its match in the submission.

    Attributes:
        cell: The cell.
        fingerprint: Empty for a solution cell.
        match: Position of the submitted cell that has its content, else of the first that has its name: an edited cell,
            or a solution. None if there is none.
        intact: Whether the match has its content.
        named: Whether a submitted cell, of code or not, has its name.
        kept: Whether the match of a locked cell runs where it is in the submission.
    """

    cell: SourceCell
    fingerprint: str
    match: int | None = None
    intact: bool = False
    named: bool = False
    kept: bool = False


class _Matching:
    """Which cells of a submission are which of the source notebook's."""

    def __init__(self, notebook: NotebookNode, source_notebook: tuple[SourceCell, ...]) -> None:
        self.nodes = notebook.cells
        self.fingerprints = _fingerprints(notebook.cells)
        self.entries = [
            _SourceEntry(cell, fingerprint(cell.source) if cell.locked else "")
            for cell in source_notebook
            if cell.role != OPEN
        ]
        self.code = [i for i, found in enumerate(self.fingerprints) if found]
        self.named = self._match_names()
        self.intact = self._match_content()
        for i in self.code:
            entry = self.named.get(i)
            if entry and i not in self.intact and entry.match is None:
                entry.match = i

    def _match_names(self) -> dict[int, _SourceEntry]:
        """Match cells by `grade_id`, else by the cell's id, else by the label: to the next solution of its task."""
        by_name = {entry.cell.name: entry for entry in self.entries}
        named: dict[int, _SourceEntry] = {}
        for i, node in enumerate(self.nodes):
            if entry := next((by_name[name] for name in cell_names(node) if name in by_name), None):
                named[i] = entry
                entry.named = True
        for i in self.code:
            cell_label = label(self.nodes[i])
            if i in named or cell_label is None or cell_label.role != SOLUTION:
                continue
            found = [e for e in self.entries if (e.cell.task, e.cell.role) == (cell_label.task, SOLUTION)]
            if found:
                named[i] = next((entry for entry in found if not entry.named), found[-1])
                named[i].named = True
        return named

    def _match_content(self) -> dict[int, _SourceEntry]:
        """Match intact cells by name and content, the remaining ones by content."""
        intact: dict[int, _SourceEntry] = {}
        by_content: dict[str, list[_SourceEntry]] = {}
        for entry in self.entries:
            by_content.setdefault(entry.fingerprint, []).append(entry)
        for by_name in (True, False):
            for i in self.code:
                same = by_content.get(self.fingerprints[i], [])
                wanted = (entry for entry in same if not entry.intact and (self.named.get(i) is entry or not by_name))
                if i not in intact and (entry := next(wanted, None)):
                    entry.match, entry.intact, intact[i] = i, True, entry
        return intact

    def _window(self, index: int) -> tuple[int, int]:
        """Return the positions between which a locked cell belongs: after all solutions before it, before the next."""
        solutions = [(j, e.match) for j, e in enumerate(self.entries) if not e.cell.locked and e.match is not None]
        low = max((i for order, i in solutions if order < index), default=-1)
        return low, min((i for order, i in solutions if order > index and i > low), default=len(self.nodes))

    def keep_cells_in_order(self) -> None:
        """Keep locked cells where they are if that is in their window, and after those kept before."""
        last = -1
        for index, entry in enumerate(self.entries):
            low, high = self._window(index)
            if entry.cell.locked and entry.match is not None and max(low, last) < entry.match < high:
                entry.kept, last = True, entry.match

    def restored_cells(self) -> Iterator[RestoredCell]:
        """Yield all cells in their new order; locked cells are inserted late, so that all they may need is defined."""
        inserted: list[list[_SourceEntry]] = [[] for _ in range(len(self.nodes) + 1)]
        following = len(self.nodes)
        for index, entry in reversed(list(enumerate(self.entries))):
            if entry.kept and entry.match is not None:
                following = entry.match
            elif entry.cell.locked:
                inserted[min(following, self._window(index)[1])].insert(0, entry)
        kept = {entry.match: entry for entry in self.entries if entry.kept}
        for i in range(len(self.nodes)):
            yield from map(self._restored_cell, inserted[i])
            if i not in self.intact:
                yield self.submitted_cell(i)
            if i in kept:
                yield self._restored_cell(kept[i])
        yield from map(self._restored_cell, inserted[-1])

    def _restored_cell(self, entry: _SourceEntry) -> RestoredCell:
        """Return a locked cell of the course; the submission's own node, if it has exactly the same source."""
        source = entry.cell.source
        own = self.nodes[entry.match] if entry.intact and entry.match is not None else None
        node = own if own is not None and own.source == source else new_code_cell(source)
        return RestoredCell(node, entry.cell.task, entry.cell.role, intact=True, delays_grading=True)

    def submitted_cell(self, i: int) -> RestoredCell:
        """Return a cell of the submission as it is."""
        node, entry = self.nodes[i], self.intact.get(i) or (self.named.get(i) if self.fingerprints[i] else None)
        if i in self.intact and entry:
            return RestoredCell(node, entry.cell.task, entry.cell.role, intact=True, delays_grading=True)
        same = [e.cell for e in self.entries if e.fingerprint and e.fingerprint == self.fingerprints[i]]
        if same and same[0].role in FEEDBACK_ROLES:  # a copy
            return RestoredCell(node, same[0].task, same[0].role, intact=True)
        if entry is None:
            return RestoredCell(node)
        first = entry.match == i
        if entry.cell.locked:
            return RestoredCell(node, entry.cell.task, delays_grading=entry.kept and first)
        return RestoredCell(node, entry.cell.task, entry.cell.role, delays_grading=first)

    def changes(self) -> Iterator[CellChange]:
        """Yield the given cells and solutions that the submission lacks or has edited, in the source's order."""
        for entry in self.entries:
            role = entry.cell.role
            if entry.match is None and (role == "given" or (role == SOLUTION and self.named)):  # solutions need names
                yield CellChange(entry.cell, self._name(entry.cell), "not code" if entry.named else "missing")
            elif role == "given" and not entry.intact:
                yield CellChange(entry.cell, self._name(entry.cell), "changed")

    def _name(self, cell: SourceCell) -> str:
        same = sum((entry.cell.task, entry.cell.role) == (cell.task, cell.role) for entry in self.entries)
        name = "cell" if same == 1 else f"cell `{cell.name}`"
        return f"the {cell.role} {name} of {cell.task}"
