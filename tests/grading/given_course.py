"""The synthetic course with cells of its own in the master: one that a check relies on, and one that looks."""

from __future__ import annotations

from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.grading.notebooks import master
from tests.grading import synthetic_course

SOLUTIONS = synthetic_course.SOLUTIONS | {
    "T9.2": "def text(number):\n    ### BEGIN SOLUTION\n    return str(number)\n    ### END SOLUTION",
}
GIVEN = "from pathlib import Path\nPath('answer.txt').write_text(text(double(21)))"
LOOK = "from pathlib import Path\nPath('looked').write_text('')"


def notebook(solutions: dict[str, str] = SOLUTIONS) -> NotebookNode:
    """The master: T9.2 has a given cell after its solution, and a look at the result after its check."""
    book = synthetic_course.notebook(solutions)
    add(book, "T9-2-solution", synthetic_course.labelled(new_code_cell(GIVEN), "T9.2", "given", locked=True))
    add(book, "T9-2-check", synthetic_course.labelled(new_code_cell(LOOK), "T9.2", "result", locked=True))
    return book


def add(book: NotebookNode, after: str, cell: NotebookNode) -> None:
    """Put a cell after the one of that name."""
    names = [one.id for one in book.cells]
    book.cells.insert(names.index(after) + 1, cell)


def by_id(book: NotebookNode, name: str) -> NotebookNode:
    """The cell of that name."""
    return next(cell for cell in book.cells if cell.id == name)


def carry(folder: Path, monkeypatch, book: NotebookNode | None = None) -> None:
    """Let the package carry the cells of a master, by default this one."""
    (folder / "t9").mkdir(parents=True)
    text = master.as_text(master.master_cells(book or notebook()))
    (folder / "t9" / master.NAME).write_text(text)
    monkeypatch.setattr(master, "FOLDER", folder)
