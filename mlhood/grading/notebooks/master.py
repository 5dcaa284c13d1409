"""The code cells of each master notebook, with stubs for its solutions.

The package contains them, as `cells.json` beside a project's checks, because it grades where there is no master
notebook: in a student's environment and in Gradescope's container. `mlhood sync` writes them from the notebooks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import Label, cell_name, check_source, label
from mlhood.grading.notebooks.stubs import stub_solutions

PROJECTS_FOLDER = Path(__file__).parents[1] / "projects"
CELLS_FILE = "cells.json"
SOLUTION, OPEN = "solution", "open"
LOCKED_ROLES = ("given", "check", "result")


@dataclass(frozen=True)
class MasterCell:
    """A code cell of a master notebook.

    Args:
        name: Its `notebook.cell_name`.
        task: Its task, or empty.
        role: `given`, `check` or `result`, which are locked; `solution`; or `open` for a cell without a task, such as
            the imports at the top, which students may change.
        source: Its source in the student's version.
    """

    name: str
    task: str
    role: str
    source: str = ""

    @property
    def locked(self) -> bool:
        """Whether it is the course's own, so that it runs as it was given."""
        return self.role in LOCKED_ROLES


def master_cells(notebook: NotebookNode) -> tuple[MasterCell, ...]:
    """Return the code cells of a master notebook, in their order.

    Raises:
        NotebookError: The markers of a solution are wrong.
    """
    cells = [(cell, label(cell) or Label("", OPEN)) for cell in notebook.cells if cell.cell_type == "code"]
    return tuple(
        MasterCell(cell_name(cell), known.task, known.role, stub_solutions(cell, f"cell {cell_name(cell)}"))
        for cell, known in cells
    )


def project_cells(project: Project) -> tuple[MasterCell, ...]:
    """Return the cells of a project's master; without synced cells, the solution and the check of each task."""
    if cells := synced_cells(project.id):
        return cells
    pairs = [
        (
            MasterCell(f"{task.slug}-solution", task.id, SOLUTION),
            MasterCell(f"{task.slug}-check", task.id, "check", check_source(task.id)),
        )
        for task in project.tasks
    ]
    return tuple(cell for pair in pairs for cell in pair)


def synced_cells(project_id: str) -> tuple[MasterCell, ...]:
    """Return the cells of a project that `mlhood sync` has written, if any."""
    path = PROJECTS_FOLDER / project_id.lower() / CELLS_FILE
    return parse_cells(path.read_text(encoding="utf-8")) if path.is_file() else ()


def dump_cells(cells: tuple[MasterCell, ...]) -> str:
    """Return cells as JSON, with one line of source per line."""
    rows = [
        {"name": cell.name, "task": cell.task, "role": cell.role, "source": cell.source.split("\n")} for cell in cells
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def parse_cells(text: str) -> tuple[MasterCell, ...]:
    """Return the cells that `dump_cells` wrote."""
    rows = json.loads(text)
    return tuple(MasterCell(row["name"], row["task"], row["role"], "\n".join(row["source"])) for row in rows)
