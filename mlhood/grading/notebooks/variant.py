"""The source notebook of a variant of the course: the public one with the text of other parameters."""

from __future__ import annotations

import copy

from nbformat import NotebookNode

from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.source_notebook import vary_cells
from mlhood.grading.notebooks.titles import write_titles


def source_of_variant(notebook: NotebookNode, project: Project) -> NotebookNode:
    """Return the solved source notebook of a variant, without the outputs that are not its own.

    Args:
        notebook: The public source notebook.
        project: Its project, with the parameters of the variant (see `projects.collect.variant`).

    Returns:
        A copy. A cell loses its outputs if it, or a cell of the same task before it, has another text: what it shows
        may depend on it. Outputs of tasks in which nothing varies stay.

    Raises:
        GradingError: A template cannot be rendered.
    """
    variant = copy.deepcopy(notebook)
    changed = vary_cells(variant, project.parameters)
    write_titles(variant, project)
    stale: set[str] = set()
    for cell in variant.cells:
        cell_label = label(cell)
        task = cell_label.task if cell_label else ""
        if cell.id in changed and task:
            stale.add(task)
        if cell.cell_type == "code" and (cell.id in changed or task in stale):
            cell.outputs, cell.execution_count = [], None
    return variant
