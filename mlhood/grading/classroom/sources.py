"""What students have written: the cells of their notebooks in the store that are not the course's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlhood.errors import NotebookError
from mlhood.grading.classroom.likeness import Pair, alike, fingerprints_of
from mlhood.grading.classroom.records import Record
from mlhood.grading.notebook import label, read

MAX_ANSWER = 10_000  # a cell of a spreadsheet holds 32,767 characters
THE_COURSES_OWN = {"given", "check", "result", "question"}


def own_cells(path: Path) -> list[str]:
    """The code of the cells that a student has filled or added; nothing if the notebook cannot be read."""
    try:
        notebook = read(path)
    except NotebookError:
        return []
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell.source for cell in code if not (known := label(cell)) or known.role not in THE_COURSES_OWN]


def answers(path: Path) -> dict[str, str]:
    """What a student has written below each written question, by its id; nothing if the notebook cannot be read."""
    try:
        notebook = read(path)
    except NotebookError:
        return {}
    written: dict[str, list[str]] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and (known := label(cell)) and known.role == "question":
            written.setdefault(known.task, []).append(cell.source)
    return {task: "\n\n".join(texts)[:MAX_ANSWER] for task, texts in written.items()}


def alike_in(found: Iterable[Record], store: Path, given: Iterable[Path]) -> dict[str, list[Pair]]:
    """The pairs of students whose work is alike, by project.

    Args:
        found: The results.
        store: Folder of the submissions.
        given: Notebooks as students got them; what stands in their cells tells nothing.

    Raises:
        NotebookError: A given notebook cannot be read.
    """
    known = fingerprints_of(cell.source for path in given for cell in read(path).cells if cell.cell_type == "code")
    marks: dict[str, dict[str, frozenset[int]]] = {}
    for one in found:
        if one.handed.sha256:
            cells = own_cells(store / f"{one.handed.sha256}.ipynb")
            marks.setdefault(one.plan.id, {})[one.student] = fingerprints_of(cells)
    return {project: alike(by_student, known) for project, by_student in marks.items()}
