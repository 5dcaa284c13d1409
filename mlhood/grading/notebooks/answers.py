"""What a student has written: the answers to written questions, and code."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from nbformat import NotebookNode

from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.restore import fingerprint, own_cells
from mlhood.grading.notebooks.source_notebook import ANSWER_STUB, project_cells
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import variant

QUESTION = "question"


def written_answers(notebook: NotebookNode | None) -> dict[str, str]:
    """Return what a student has written below each written question, by the id of the question; may be nothing."""
    answers: dict[str, list[str]] = {}
    for cell in notebook.cells if notebook else []:
        if cell.cell_type == "markdown" and (cell_label := label(cell)) and cell_label.role == QUESTION:
            answers.setdefault(cell_label.task, []).append(cell.source)
    texts = {question: "\n\n".join(sources) for question, sources in answers.items()}
    return {question: "" if text.strip() == ANSWER_STUB else text for question, text in texts.items()}


def own_code(notebook: NotebookNode | None, project: str, variant_names: Iterable[str]) -> list[tuple[int, str]]:
    """Return the position, from 1, and the source of each code cell that the course has not written.

    Args:
        notebook: A submission; None if it cannot be read.
        project: The project's id.
        variant_names: Of the variants that the class was given.
    """
    return list(own_cells(notebook, _course_code(project, frozenset(variant_names)))) if notebook else []


@cache
def _course_code(project: str, variant_names: frozenset[str]) -> frozenset[str]:
    projects = [PROJECTS[project], *(variant(PROJECTS[project], variant_name) for variant_name in variant_names)]
    return frozenset(fingerprint(cell.source) for each in projects for cell in project_cells(each))
