"""The version that a notebook was made from: one with other cells than the course now has cannot be graded fairly.

Its cells import what has moved and define what no check looks for any more, so right solutions would lose points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import cell_names, parse_label
from mlhood.grading.notebooks.source_notebook import LOCKED_ROLES, project_cells

SHOWN_CELLS = 3
VERSION_KEY = "edition"  # the key of a notebook's metadata under `mlhood`


def require_current_version(notebook: NotebookNode, project: Project, path: str | Path) -> None:
    """Reject a notebook that has locked cells which the source notebook does not have, and lacks some that the source
    notebook has.

    Both, since a student may delete a cell of the course, or paste one from last year's notebook.

    Raises:
        NotebookError: The notebook was made from another version of the course.
    """
    names = {name for cell in notebook.cells for name in cell_names(cell) if _is_locked(name, project)}
    expected = {cell.name for cell in project_cells(project) if cell.locked}
    unknown, missing = sorted(names - expected), expected - names
    if not unknown or not missing:
        return
    more = f" and {len(unknown) - SHOWN_CELLS} more" if len(unknown) > SHOWN_CELLS else ""
    raise NotebookError(
        "the notebook was made from another version of the course",
        where=path,
        expected=f"the cells of {project.id} in this version",
        got=f"cells that this version does not have: {', '.join(unknown[:SHOWN_CELLS])}{more}",
        todo="paste its solutions into the notebook of this version, or grade it with the mlhood that it came with",
    )


def store_signature(notebook: NotebookNode, signed: str) -> None:
    """Store the signed name of its version in a notebook (see `variants.seed`)."""
    metadata = notebook.metadata.get("mlhood", {})
    notebook.metadata["mlhood"] = {**metadata, VERSION_KEY: signed}


def stored_signature(notebook: NotebookNode) -> Any:
    """Return the signed name of the version of a notebook; it may be anything, None if there is none."""
    metadata = notebook.metadata.get("mlhood")
    return metadata.get(VERSION_KEY) if isinstance(metadata, dict) else None


def _is_locked(name: str, project: Project) -> bool:
    label = parse_label(name)
    return label is not None and label.role in LOCKED_ROLES and label.task.partition(".")[0] == project.id
