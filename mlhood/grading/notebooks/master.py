"""What the course itself puts into a notebook: the code cells of each master notebook, with stubs for its solutions.

The package carries them, `cells.json` beside a project's tasks, since it marks where no master notebook is: in a
student's environment and in Gradescope's container. They are written from the notebooks, by

    python -m mlhood.grading.notebooks.sync

in the folder of the course.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import Label, cell_name, check_source, label
from mlhood.grading.notebooks.stubs import stubbed

FOLDER = Path(__file__).parents[1] / "projects"
NAME = "cells.json"
SOLUTION, OPEN = "solution", "open"
OWN_ROLES = ("given", "check", "result")


@dataclass(frozen=True)
class MasterCell:
    """A code cell of a master notebook.

    Args:
        name: As `notebook.cell_name` gives it.
        task: The task that it belongs to, or empty.
        role: `given`, `check` or `result`, which are the course's own; `solution`; or `open` for one that belongs to no
            task, such as the imports at the top, which is the student's to change.
        source: As students get it.
    """

    name: str
    task: str
    role: str
    source: str = ""

    @property
    def own(self) -> bool:
        """Whether it is the course's own, so that it runs as it was given."""
        return self.role in OWN_ROLES


def master_cells(notebook: NotebookNode) -> tuple[MasterCell, ...]:
    """The code cells of a master notebook, in their order.

    Raises:
        NotebookError: A solution is marked wrongly.
    """
    cells = [(cell, label(cell) or Label("", OPEN)) for cell in notebook.cells if cell.cell_type == "code"]
    return tuple(
        MasterCell(cell_name(cell), known.task, known.role, stubbed(cell, f"cell {cell_name(cell)}"))
        for cell, known in cells
    )


def cells_of(project: Project) -> tuple[MasterCell, ...]:
    """The cells of a project's master. Of one that the package carries no cells of: those that any master has."""
    carried = carried_cells(project.id)
    if carried:
        return carried
    bare = [
        (
            MasterCell(f"{task.slug}-solution", task.id, SOLUTION),
            MasterCell(f"{task.slug}-check", task.id, "check", check_source(task.id)),
        )
        for task in project.tasks
    ]
    return tuple(cell for pair in bare for cell in pair)


def carried_cells(project: str) -> tuple[MasterCell, ...]:
    """The cells that the package carries of a project, by its id; none of one that it does not know."""
    path = FOLDER / project.lower() / NAME
    return as_cells(path.read_text(encoding="utf-8")) if path.is_file() else ()


def as_text(cells: tuple[MasterCell, ...]) -> str:
    """Cells as JSON, a line of source in a line of text."""
    rows = [
        {"name": cell.name, "task": cell.task, "role": cell.role, "source": cell.source.split("\n")} for cell in cells
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def as_cells(text: str) -> tuple[MasterCell, ...]:
    """What `as_text` has written."""
    rows = json.loads(text)
    return tuple(MasterCell(row["name"], row["task"], row["role"], "\n".join(row["source"])) for row in rows)
