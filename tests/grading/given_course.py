"""The synthetic course with two more locked cells: a given one that a check needs, and a result cell."""

from __future__ import annotations

from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.grading.notebooks import source_notebook
from tests.grading import synthetic_course

SOLUTIONS = synthetic_course.SOLUTIONS | {
    "T9.2": "def text(number):\n    ### BEGIN SOLUTION\n    return str(number)\n    ### END SOLUTION",
}
GIVEN = "from pathlib import Path\nPath('answer.txt').write_text(text(double(21)))"
LOOK = "from pathlib import Path\nPath('looked').write_text('')"


def notebook(solutions: dict[str, str] = SOLUTIONS) -> NotebookNode:
    """The source notebook: T9.2 has a given cell after its solution, and a look at the result after its check."""
    book = synthetic_course.notebook(solutions)
    add(book, "T9-2-solution", synthetic_course.labelled(new_code_cell(GIVEN), "T9.2", "given", locked=True))
    add(book, "T9-2-check", synthetic_course.labelled(new_code_cell(LOOK), "T9.2", "result", locked=True))
    return book


def add(book: NotebookNode, after: str, cell: NotebookNode) -> None:
    """Put a cell after the one of that name."""
    names = [existing.id for existing in book.cells]
    book.cells.insert(names.index(after) + 1, cell)


def by_id(book: NotebookNode, name: str) -> NotebookNode:
    """The cell of that name."""
    return next(cell for cell in book.cells if cell.id == name)


def sync(folder: Path, monkeypatch, book: NotebookNode | None = None) -> None:
    """Make the cells of a source notebook, by default this one, the package's synced cells."""
    (folder / "t9").mkdir(parents=True)
    text = source_notebook.dump_cells(source_notebook.source_cells(book or notebook()))
    (folder / "t9" / source_notebook.CELLS_FILE).write_text(text)
    monkeypatch.setattr(source_notebook, "PROJECTS_FOLDER", folder)
