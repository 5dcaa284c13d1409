"""What students have written, and who has written the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.gradebook.records import Record
from mlhood.grading.notebooks.master import carried_cells
from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.similarity.compare import Pair, Work, alike, copied, unread
from mlhood.grading.similarity.package_source import own_source

MAX_ANSWER = 10_000  # a cell of a spreadsheet holds 32,767 characters


@dataclass(frozen=True)
class Likeness:
    """What a comparison of a project's submissions has found.

    Args:
        pairs: Students whose work is alike.
        copies: Students who hold a function of the package.
        unread: Students and places whose code could not be compared.
    """

    pairs: Sequence[Pair] = ()
    copies: Sequence[Pair] = ()
    unread: Sequence[tuple[str, str]] = ()


def answers(path: Path) -> dict[str, str]:
    """What a student has written below each written question, by its id; nothing if the notebook cannot be read."""
    notebook = handed_in(path)
    written: dict[str, list[str]] = {}
    for cell in notebook.cells if notebook else []:
        if cell.cell_type == "markdown" and (known := label(cell)) and known.role == "question":
            written.setdefault(known.task, []).append(cell.source)
    return {task: "\n\n".join(texts)[:MAX_ANSWER] for task, texts in written.items()}


def likeness(found: Iterable[Record], store: Path, given: Iterable[Path]) -> dict[str, Likeness]:
    """Who has written the same, by project. What the course has given is known by what it says: a label can be forged.

    Args:
        found: The results.
        store: Folder of the submissions.
        given: Notebooks as students got them, where that was another edition than this package knows.

    Raises:
        NotebookError: A given notebook cannot be read.
    """
    editions = [cell.source for path in given for cell in read(path).cells if cell.cell_type == "code"]
    works: dict[str, list[Work]] = {}
    for one in found:
        notebook = handed_in(store / f"{one.handed.sha256}.ipynb") if one.handed.sha256 else None
        if notebook is not None:
            works.setdefault(one.plan.id, []).append(work_of(notebook, one.student))
    package = list(own_source()) if works else []
    compared: dict[str, Likeness] = {}
    for project, some in works.items():
        known = [*editions, *(cell.source for cell in carried_cells(project))]
        compared[project] = Likeness(alike(some, known), copied(some, package, known), unread(some))
    return compared


def handed_in(path: Path) -> NotebookNode | None:
    """The notebook in the store, or None if it cannot be read."""
    try:
        return read(path)
    except NotebookError:
        return None


def work_of(notebook: NotebookNode, student: str) -> Work:
    """The code of a submission: that of solution cells by task, and that of all others by their place."""
    sources: dict[str, list[str]] = {}
    for at, cell in enumerate(notebook.cells, start=1):
        known = label(cell)
        if cell.cell_type == "code":
            place = known.task if known and known.role == "solution" else f"cell {at}"
            sources.setdefault(place, []).append(cell.source)
    return Work(student, {place: "\n\n".join(cells) for place, cells in sources.items()})
