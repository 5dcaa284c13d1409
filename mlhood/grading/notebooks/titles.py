"""The titles and points of a project's tasks in the text of its notebook, from the tasks themselves."""

from __future__ import annotations

import re
from collections.abc import Callable

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.checks.task import Project, Task

TASK_HEADING = re.compile(r"^### ([A-Z]\d\.\d+) · .*$", re.MULTILINE)


def _linked(task_id: str) -> str:
    project, _, number = task_id.partition(".")
    return f"[{task_id}](#{project.lower()}-{number})"


TASK_TABLE = re.compile(r"^\| *task *\|.*$", re.MULTILINE)
TASK_COLUMNS: dict[str, Callable[[Task], str]] = {
    "task": lambda task: _linked(task.id),
    "what you do": lambda task: task.title,
    "points": lambda task: f"{task.points:g}",
    "minutes": lambda task: f"{task.minutes}",
    "builds on": lambda task: ", ".join(task.builds_on),
}


def write_titles(notebook: NotebookNode, project: Project) -> None:
    """Write the titles and points of a project's tasks into the headings and the table of its notebook, in place.

    Raises:
        NotebookError: The table has an unknown column.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = TASK_HEADING.sub(lambda match: _heading(match, project), cell.source)
    _write_task_table(notebook.cells[0], project)


def _heading(match: re.Match[str], project: Project) -> str:
    task = project.task(match[1])
    return f"### {task.id} · {task.title} ({task.points:g} points)" if task else match[0]


def _write_task_table(cell: NotebookNode, project: Project) -> None:
    """Replace the rows of tasks in the table of the first cell, and the number of points and tasks above it.

    Its columns are those of `TASK_COLUMNS` that its header names.
    """
    header = TASK_TABLE.search(cell.source)
    columns = [name.strip() for name in header[0].strip().strip("|").split("|")] if header else []
    for column in columns:
        if column not in TASK_COLUMNS:
            raise NotebookError(
                "the table of tasks has an unknown column",
                where=project.id,
                expected=", ".join(TASK_COLUMNS),
                got=column,
                todo="rename or remove the column in the first cell",
            )
    rows = ["| " + " | ".join(TASK_COLUMNS[column](task) for column in columns) + " |" for task in project.tasks]
    questions = "|".join(re.escape(question.id) for question in project.questions) or "-"
    row = rf"\| \[(?!(?:{questions})\]){project.id}\.\d+\]\(#.*\) \|.*\|\n"
    cell.source = re.sub(rf"(^{row})+", lambda _: "\n".join(rows) + "\n", cell.source, count=1, flags=re.MULTILINE)
    counts = f"`{project.points:g} points` · `{len(project.tasks)} tasks`"
    cell.source = re.sub(r"`[\d.]+ points` · `\d+ tasks`", counts, cell.source, count=1)
