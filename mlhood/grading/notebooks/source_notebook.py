"""The source notebooks: their titles, student's version and variants, and the package's copy of their code cells.

Solutions become stubs, as nbgrader's ClearSolutions makes them:

1. Every region between solution markers is replaced by the stub, indented like its first marker.
2. A solution cell without a region is replaced by the stub.
3. Outputs of solution and check cells are removed, and of `result` cells after the first solution of their task, which
   would reveal an answer; all other outputs stay, such as diagrams that explain a task. Execution counts are removed.
4. Graded cells cannot be deleted, given and check cells cannot be edited; their checksums are nbgrader's.

The package contains the cells, as `cells.json` beside a project's checks, because it grades where there is no source
notebook: in a student's environment and in Gradescope's container. `mlhood sync` writes them from the notebooks.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.checks.task import Project, Task
from mlhood.grading.notebooks.notebook import Label, cell_name, check_source, clean, label
from mlhood.grading.projects.collect import variant
from mlhood.grading.projects.package_files import CELLS_FILE, cell_templates, source_solutions, varied_solutions
from mlhood.grading.variants.templates import VARIES, Templates, vary

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
CODE_STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
ANSWER_STUB = "YOUR ANSWER HERE"
TEXT_STUB = (ANSWER_STUB,)
CLEARED = ("solution", "check")
PROJECTS_FOLDER = Path(__file__).parents[1] / "projects"
SOLUTION, OPEN = "solution", "open"
LOCKED_ROLES = ("given", "check", "result")
TASK_HEADING = re.compile(r"^### ([A-Z]\d\.\d+) · .*$", re.MULTILINE)
TASK_TABLE = re.compile(r"^\| *task *\|.*$", re.MULTILINE)
TASK_COLUMNS: dict[str, Callable[[Task], str]] = {
    "task": lambda task: f"[{task.id}](#{task.id.lower().replace('.', '-')})",
    "what you do": lambda task: task.title,
    "points": lambda task: f"{task.points:g}",
    "minutes": lambda task: f"{task.minutes}",
    "builds on": lambda task: ", ".join(task.builds_on),
}


def student_version(notebook: NotebookNode, path: Path) -> None:
    """Turn a source notebook into the student's version, in place.

    Raises:
        NotebookError: Solution markers do not match, or are in a cell that is not a solution cell.
    """
    clean(notebook)
    begun: set[str] = set()  # tasks whose first solution cell has been passed
    for index, cell in enumerate(notebook.cells):
        where = f"{path}, cell {index + 1} ({cell.get('id', 'without id')})"
        cell.source = stub_solutions(cell, where)
        _drop_templates(cell)
        if cell.cell_type == "code":
            _clear_outputs(cell, begun)
        _lock(cell)


def templates_of(cell: NotebookNode) -> Templates:
    """Return the templates of a cell: what becomes of its phrases in a variant (see `variants.templates`)."""
    metadata = cell.metadata.get("mlhood")
    return metadata.get(VARIES, {}) if isinstance(metadata, dict) else {}


def vary_cells(notebook: NotebookNode, values: Mapping[str, Any]) -> set[str]:
    """Give the cells of a source notebook the text of a variant, in place; return the ids of those that change.

    Raises:
        GradingError: A template cannot be rendered.
    """
    changed = set()
    for cell in notebook.cells:
        source = vary(cell.source, templates_of(cell), values)
        if source != cell.source:
            changed.add(cell.id)
        cell.source = source
        _drop_templates(cell)
    return changed


def _drop_templates(cell: NotebookNode) -> None:
    metadata = cell.metadata.get("mlhood")
    if isinstance(metadata, dict) and metadata.pop(VARIES, None) is not None and not metadata:
        del cell.metadata["mlhood"]


def stub_solutions(cell: NotebookNode, where: str) -> str:
    """Return the source of a cell with its solution regions replaced by the stub.

    Raises:
        NotebookError: Solution markers do not match, or are in a cell that is not a solution cell.
    """
    stub = CODE_STUB if cell.cell_type == "code" else TEXT_STUB
    lines, inside = [], False
    for line in cell.source.split("\n"):
        if BEGIN in line or END in line:
            if inside == (BEGIN in line):
                _refuse("the solution markers do not match", line, where)
            inside = BEGIN in line
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + part for part in stub] if inside else []
        elif not inside:
            lines.append(line)
    if inside:
        _refuse("the solution markers do not match", "no END SOLUTION after the last BEGIN SOLUTION", where)
    replaced = "\n".join(lines) != cell.source
    if replaced and not _flag(cell, "solution"):
        _refuse("a solution is in a cell that is not marked as a solution cell", "solution: false", where)
    return "\n".join(stub) if _flag(cell, "solution") and not replaced else "\n".join(lines)


def solution_source(cell: NotebookNode) -> str:
    """Return the source of a cell without its solution markers."""
    return "\n".join(line for line in cell.source.split("\n") if BEGIN not in line and END not in line)


def _refuse(what: str, got: str, where: str) -> None:
    raise NotebookError(
        what,
        where=where,
        expected=f"### {BEGIN} and ### {END} alternating, in a solution cell",
        got=got.strip(),
        todo="correct the cell in the source notebook",
    )


def _flag(cell: NotebookNode, name: str) -> bool:
    grader = cell.metadata.get("nbgrader")
    return bool(grader.get(name, False)) if isinstance(grader, dict) else False


def _clear_outputs(cell: NotebookNode, begun: set[str]) -> None:
    cell_label = label(cell)
    if cell_label and cell_label.role == "solution":
        begun.add(cell_label.task)
    if cell_label and (cell_label.role in CLEARED or (cell_label.role == "result" and cell_label.task in begun)):
        cell.outputs = []
    cell.execution_count = None
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = None


def _lock(cell: NotebookNode) -> None:
    solution, grade, locked = (_flag(cell, name) for name in ("solution", "grade", "locked"))
    if not (solution or grade or locked):
        return
    cell.metadata["deletable"] = False
    if not solution:
        cell.metadata["editable"] = False
    cell.metadata.nbgrader["checksum"] = checksum(cell)
    cell.metadata.nbgrader["cell_type"] = cell.cell_type


def checksum(cell: NotebookNode) -> str:
    """Return the checksum by which nbgrader detects a changed cell."""
    solution, grade = _flag(cell, "solution"), _flag(cell, "grade")
    locked = not solution and (grade or _flag(cell, "locked"))
    grader = cell.metadata.nbgrader
    parts = [cell.source, cell.cell_type, str(grade), str(solution), str(locked), grader["grade_id"]]
    if grade:
        parts.append(str(float(grader["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class SourceCell:
    """A code cell of a source notebook.

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


def source_cells(notebook: NotebookNode) -> tuple[SourceCell, ...]:
    """Return the code cells of a source notebook, in their order.

    Raises:
        NotebookError: The markers of a solution are wrong.
    """
    cells = [(cell, label(cell) or Label("", OPEN)) for cell in notebook.cells if cell.cell_type == "code"]
    return tuple(
        SourceCell(cell_name(cell), cell_label.task, cell_label.role, stub_solutions(cell, f"cell {cell_name(cell)}"))
        for cell, cell_label in cells
    )


def project_cells(project: Project) -> tuple[SourceCell, ...]:
    """Return the cells of a source notebook; without synced cells, the solution and the check of each task."""
    if cells := synced_cells(project.id):
        templates = cell_templates(project.id) if project.varied else {}
        return tuple(
            replace(cell, source=vary(cell.source, templates.get(cell.name, {}), project.parameters)) for cell in cells
        )
    pairs = [
        (
            SourceCell(f"{task.slug}-solution", task.id, SOLUTION),
            SourceCell(f"{task.slug}-check", task.id, "check", check_source(task.id)),
        )
        for task in project.tasks
    ]
    return tuple(cell for pair in pairs for cell in pair)


def synced_cells(project_id: str) -> tuple[SourceCell, ...]:
    """Return the cells of a project that `mlhood sync` has written, if any."""
    path = PROJECTS_FOLDER / project_id.lower() / CELLS_FILE
    return parse_cells(path.read_text(encoding="utf-8")) if path.is_file() else ()


def variant_texts(project: Project, variant_name: str) -> tuple[list[str], dict[str, str]]:
    """Return the sources of the code cells that students of a variant get, and by task the solutions that are its own.

    Raises:
        GradingError: It cannot be the name of a variant, or this is a student version.
    """
    varied = variant(project, variant_name)
    public = source_solutions(project.id)
    solutions = varied_solutions(project.id, varied.parameters)
    own = {task: source for task, source in solutions.items() if source != public[task]}
    return [cell.source for cell in project_cells(varied)], own


def dump_cells(cells: tuple[SourceCell, ...]) -> str:
    """Return cells as JSON, with one line of source per line."""
    rows = [
        {"name": cell.name, "task": cell.task, "role": cell.role, "source": cell.source.split("\n")} for cell in cells
    ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def parse_cells(text: str) -> tuple[SourceCell, ...]:
    """Return the cells that `dump_cells` wrote."""
    rows = json.loads(text)
    return tuple(SourceCell(row["name"], row["task"], row["role"], "\n".join(row["source"])) for row in rows)


def write_titles(notebook: NotebookNode, project: Project) -> None:
    """Write the titles and points of a project's tasks into the headings and the table of its notebook, in place."""
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
    rows = ["| " + " | ".join(TASK_COLUMNS[column](task) for column in columns) + " |" for task in project.tasks]
    questions = "|".join(re.escape(question.id) for question in project.questions) or "-"
    row = rf"\| \[(?!(?:{questions})\]){project.id}\.\d+\]\(#.*\) \|.*\|\n"
    cell.source = re.sub(rf"(^{row})+", lambda _: "\n".join(rows) + "\n", cell.source, count=1, flags=re.MULTILINE)
    counts = f"`{project.points:g} points` · `{len(project.tasks)} tasks`"
    cell.source = re.sub(r"`[\d.]+ points` · `\d+ tasks`", counts, cell.source, count=1)


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
    varied = copy.deepcopy(notebook)
    changed = vary_cells(varied, project.parameters)
    write_titles(varied, project)
    stale: set[str] = set()
    for cell in varied.cells:
        cell_label = label(cell)
        task = cell_label.task if cell_label else ""
        if cell.id in changed and task:
            stale.add(task)
        if cell.cell_type == "code" and (cell.id in changed or task in stale):
            cell.outputs, cell.execution_count = [], None
    return varied
