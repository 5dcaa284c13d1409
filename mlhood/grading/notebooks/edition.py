"""The edition that a notebook was made from: one with other cells than the course now has cannot be judged fairly.

Its cells import what has moved and define what no check looks for any more, so right solutions would lose points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.master import LOCKED_ROLES, project_cells
from mlhood.grading.notebooks.notebook import cell_names, parse_label

SHOWN_CELLS = 3
EDITION = "edition"  # the key of a notebook's metadata under `mlhood`


def require_current_edition(notebook: NotebookNode, project: Project, path: str | Path) -> None:
    """Reject a notebook that has locked cells which the master does not have, and lacks some that the master has.

    Both, since a student may delete a cell of the course, or paste one from last year's notebook.

    Raises:
        NotebookError: The notebook was made from another edition of the course.
    """
    names = {name for cell in notebook.cells for name in cell_names(cell) if _is_locked(name, project)}
    expected = {cell.name for cell in project_cells(project) if cell.locked}
    unknown, missing = sorted(names - expected), expected - names
    if not unknown or not missing:
        return
    more = f" and {len(unknown) - SHOWN_CELLS} more" if len(unknown) > SHOWN_CELLS else ""
    raise NotebookError(
        "the notebook was made from another edition of the course",
        where=path,
        expected=f"the cells of {project.id} in this edition",
        got=f"cells that this edition does not have: {', '.join(unknown[:SHOWN_CELLS])}{more}",
        todo="paste its solutions into the notebook of this edition, or grade it with the mlhood that it came with",
    )


def seal_edition(notebook: NotebookNode, sealed: str) -> None:
    """Store the sealed name of its edition in a notebook (see `variants.seal`)."""
    metadata = notebook.metadata.get("mlhood", {})
    notebook.metadata["mlhood"] = {**metadata, EDITION: sealed}


def sealed_edition(notebook: NotebookNode) -> Any:
    """Return the sealed name of the edition of a notebook; it may be anything, None if there is none."""
    metadata = notebook.metadata.get("mlhood")
    return metadata.get(EDITION) if isinstance(metadata, dict) else None


def _is_locked(name: str, project: Project) -> bool:
    label = parse_label(name)
    return label is not None and label.role in LOCKED_ROLES and label.task.partition(".")[0] == project.id
