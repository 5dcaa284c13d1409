"""A project of one task that takes no time, so that its grading time is all overhead."""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Project, Task, points
from mlhood.grading.notebooks.notebook import check_source


@points(10)
def doubles(submission: Submission) -> None:
    """`double` doubles numbers."""
    expect.equal(submission.call("double", 21), 42, "`double` is wrong")


TINY = Project("T1", "A tiny project", (Task("T1.1", "Double", (doubles,)),))


def notebook() -> NotebookNode:
    """Return its solved notebook."""
    book = new_notebook(metadata={"mlhood": {"project": TINY.id}})
    solution = new_code_cell("def double(x):\n    return 2 * x", id="T1-1-solution")
    check = new_code_cell(check_source("T1.1"), id="T1-1-check")
    for cell, role in ((solution, "solution"), (check, "check")):
        cell.metadata["mlhood"] = {"task": "T1.1", "role": role}
    book.cells = [new_markdown_cell("# Tiny"), new_code_cell("1 + 1"), solution, check]
    return book
