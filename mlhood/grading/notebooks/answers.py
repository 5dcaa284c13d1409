"""What a student has written: the answers to written questions, and the code of tasks."""

from __future__ import annotations

from nbformat import NotebookNode

from mlhood.grading.notebooks.master import ANSWER_STUB, LOCKED_ROLES, SOLUTION
from mlhood.grading.notebooks.notebook import label

QUESTION = "question"


def written_answers(notebook: NotebookNode | None) -> dict[str, str]:
    """Return what a student has written below each written question, by the id of the question; may be nothing."""
    texts = _sources(notebook, "markdown", QUESTION)
    return {question: "" if text.strip() == ANSWER_STUB else text for question, text in texts.items()}


def task_code(notebook: NotebookNode | None) -> dict[str, str]:
    """Return the code in the solution cells of each task, by the id of the task."""
    return _sources(notebook, "code", SOLUTION)


def open_code(notebook: NotebookNode | None) -> str:
    """Return the code of all cells that belong to no task, such as those that a student has added."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"] if notebook else []
    known = {*LOCKED_ROLES, SOLUTION}
    labels = [(label(cell), cell.source) for cell in cells]
    return "\n\n".join(source for cell_label, source in labels if not cell_label or cell_label.role not in known)


def _sources(notebook: NotebookNode | None, kind: str, role: str) -> dict[str, str]:
    sources: dict[str, list[str]] = {}
    for cell in notebook.cells if notebook else []:
        if cell.cell_type == kind and (cell_label := label(cell)) and cell_label.role == role:
            sources.setdefault(cell_label.task, []).append(cell.source)
    return {task: "\n\n".join(texts) for task, texts in sources.items()}
