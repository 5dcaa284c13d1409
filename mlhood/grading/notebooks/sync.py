"""`mlhood sync`: make the course's notebooks, their check modules and the package's copies of cells agree.

1. In the section of a heading `### P1.3 · ...`, a code cell with solution markers is a solution, `mlhood.check("P1.3")`
   the check, and any other code cell `given` before the check and a `result` after it. A cell that has a label keeps
   it: to change its role, edit `mlhood.role` in its metadata. A copy of a labelled cell is labelled by its place.
2. Labelled cells get a unique name, nbgrader's metadata, and the points of their task (check cells).
3. Titles and points in headings and in the table of tasks come from the check modules.
4. The package gets the cells in their student's version (`cells.json`), which submissions are compared with, and the
   solutions (`solutions.json`), which replace unsolved tasks, and of which copies are found, and the written questions
   with their rubrics (`questions.json`), which the person who marks the answers sees beside them, and the templates
   of code cells (`variants.json`), from which other variants of the course are made.
5. The README gets a picture of each executed notebook, and the syllabus (see `readme`).
6. `.github/INTERFACE.md` lists what the notebooks import (see `interface`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from mlhood.errors import GradingError, NotebookError
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.interface import INTERFACE_PAGE, interface_page
from mlhood.grading.notebooks.notebook import (
    CHECK_CALL,
    Label,
    cell_name,
    check_source,
    course_notebooks,
    label,
    notebook_text,
    project_of,
    read,
)
from mlhood.grading.notebooks.questions import QUESTIONS_FILE, dump_questions, source_questions
from mlhood.grading.notebooks.readme import EXCERPTS, readme_files
from mlhood.grading.notebooks.source_notebook import (
    BEGIN,
    SOLUTION,
    dump_cells,
    solution_source,
    source_cells,
    templates_of,
    write_titles,
)
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import parameters_of
from mlhood.grading.projects.package_files import CELLS_FILE, SOLUTIONS_FILE, VARIANTS_FILE
from mlhood.grading.variants.parameter import defaults
from mlhood.grading.variants.templates import VARIES, render

PROJECTS_PATH = "mlhood/grading/projects"
HEADING = re.compile(r"^#{2,3} (?:([A-Z]\d\.\d+) · )?", re.MULTILINE)
# nbgrader's flags by role
FLAGS = {
    "given": {"grade": False, "locked": True, "solution": False},
    "solution": {"grade": False, "locked": False, "solution": True},
    "check": {"grade": True, "locked": True, "solution": False},
    "result": {"grade": False, "locked": True, "solution": False},
    "question": {"grade": True, "locked": False, "solution": True},
}


def outdated_files(root: Path) -> dict[str, bytes]:
    """Return the files of the course in `root` that are not in sync: their new content, by path from the folder.

    Raises:
        NotebookError: A notebook has a cell of an unknown task, or a task lacks a cell.
    """
    texts = {}
    paths = course_notebooks(root)
    for path in paths:
        notebook = read(path)
        project = project_of(notebook, path)
        sync_notebook(notebook, project, path)
        require_templates(notebook, project, path)
        texts |= {path.name: notebook_text(notebook)} | notebook_files(notebook, path)
    files = {name: text.encode() for name, text in texts.items()}
    if {path.stem for path in paths} >= set(EXCERPTS) and (root / "README.md").is_file():
        files |= readme_files(root, PROJECTS.values())
        files[INTERFACE_PAGE] = interface_page(paths).encode()
    return {name: content for name, content in files.items() if not _is_current(root / name, content)}


def cell_files(source_notebooks: Iterable[Path]) -> dict[str, str]:
    """Return the files of the package that are copied from these notebooks: text by path from the course's folder.

    Raises:
        NotebookError: One is not a notebook of the course, or the markers of a solution are wrong.
    """
    files = {}
    for path in source_notebooks:
        files |= notebook_files(read(path), path)
    return files


def require_synced(root: Path, source_notebooks: Iterable[Path]) -> None:
    """Check that the package in `root` contains the current cells of these notebooks.

    Raises:
        GradingError: It contains others.
    """
    for name, text in cell_files(source_notebooks).items():
        if not _is_current(root / name, text.encode()):
            raise GradingError(
                "the package's copy of a notebook's cells is out of date",
                where=root / name,
                expected="the cells of the notebook, so that submissions are graded with them",
                todo="run `mlhood sync` in the folder of the course",
            )


def _is_current(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def notebook_files(notebook: NotebookNode, path: Path) -> dict[str, str]:
    """Return the files of the package that are copied from a source notebook: text by path from the course's folder.

    Raises:
        NotebookError: It is not a notebook of the course, or the markers of a solution are wrong.
    """
    project = project_of(notebook, path)
    folder = f"{PROJECTS_PATH}/{project.id.lower()}"
    files = {f"{folder}/{CELLS_FILE}": dump_cells(source_cells(notebook))}
    solutions = {
        task.id: "\n\n".join(
            solution_source(cell) for cell in notebook.cells if label(cell) == Label(task.id, SOLUTION)
        )
        for task in project.tasks
    }
    files[f"{folder}/{SOLUTIONS_FILE}"] = json.dumps(solutions, indent=1, ensure_ascii=False) + "\n"
    files[f"{folder}/{QUESTIONS_FILE}"] = dump_questions(source_questions(notebook))
    files[f"{folder}/{VARIANTS_FILE}"] = json.dumps(_templates(notebook), indent=1, ensure_ascii=False) + "\n"
    return files


def _templates(notebook: NotebookNode) -> dict[str, dict[str, Any]]:
    """Return the templates of the code cells by name, and those of all solution cells of a task together."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and templates_of(cell)]
    solutions: dict[str, dict[str, str]] = {}
    for cell in cells:
        cell_label = label(cell)
        if cell_label and cell_label.role == SOLUTION:
            solutions.setdefault(cell_label.task, {}).update(templates_of(cell))
    return {"cells": {cell_name(cell): dict(templates_of(cell)) for cell in cells}, "solutions": solutions}


def require_templates(notebook: NotebookNode, project: Project, path: Path) -> None:
    """Check that the phrases which a variant replaces are in their cells, and that the defaults change nothing.

    Raises:
        NotebookError: A phrase is not in its cell, or its template gives another text for the defaults.
        GradingError: A template cannot be rendered.
    """
    values = defaults(parameters_of(project))
    for i, cell in enumerate(notebook.cells):
        for phrase, template in templates_of(cell).items():
            got = render(template, values)
            if phrase not in cell.source or got != phrase:
                raise NotebookError(
                    "a template of a cell does not give the phrase that it stands for",
                    where=f"{path}, cell {i + 1} ({cell_name(cell)})",
                    expected=f"{phrase!r}, somewhere in the cell",
                    got=f"{got!r} for the default values" if phrase in cell.source else "a cell without it",
                    todo=f"correct mlhood.{VARIES} in the metadata of the cell",
                )


def sync_notebook(notebook: NotebookNode, project: Project, path: Path) -> None:
    """Update labels, names and metadata of a source notebook's cells, and titles and points in its text, in place.

    Raises:
        NotebookError: It has a cell of an unknown task, or lacks a cell of a task.
    """
    labels = _labels(notebook)
    _check_tasks(labels, project, path)
    names = {cell_name(cell) for cell in notebook.cells}
    named: set[str] = set()
    for cell, cell_label in zip(notebook.cells, labels, strict=True):
        name = cell_name(cell)
        if not cell_label and name in named:  # a copy outside of any task
            for key in ("mlhood", "nbgrader", "deletable", "editable"):
                cell.metadata.pop(key, None)
        if cell_label:
            if name in named or not re.fullmatch(rf"{_base_name(cell_label)}(-\d+)?", name):
                name = _new_name(cell_label, names)
            names.add(name)
            named.add(name)
            _write_metadata(cell, cell_label, name, project)
    write_titles(notebook, project)


def _labels(notebook: NotebookNode) -> list[Label | None]:
    """Return the label of each cell: its own, or for a new cell and for a copy, that of its place."""
    labels: list[Label | None] = []
    names: set[str] = set()
    section = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            section = next((match[1] or "" for match in reversed([*HEADING.finditer(cell.source)])), section)
        cell_label = None if cell_name(cell) in names else label(cell)
        labels.append(cell_label or _label_by_place(cell, section, Label(section, "check") in labels))
        names.add(cell_name(cell))
    return labels


def _label_by_place(cell: NotebookNode, section: str, checked: bool) -> Label | None:
    if cell.cell_type != "code":
        return None
    if call := CHECK_CALL.fullmatch(cell.source.strip()):
        return Label(call[1], "check")
    if not section:
        return None
    return Label(section, SOLUTION if BEGIN in cell.source else "result" if checked else "given")


def _check_tasks(labels: list[Label | None], project: Project, path: Path) -> None:
    ids = [task.id for task in project.tasks] + [question.id for question in project.questions]
    for i, cell_label in enumerate(labels):
        if cell_label and cell_label.task not in ids:
            raise NotebookError(
                "a cell belongs to a task that is not declared",
                where=f"{path}, cell {i + 1}",
                expected=f"one of {', '.join(ids)}",
                got=cell_label.task,
                todo=f"declare the task in a check module of {PROJECTS_PATH}/{project.id.lower()}, or remove the cell",
            )
    for task in project.tasks:
        for role in (SOLUTION, "check"):
            if Label(task.id, role) not in labels:
                raise NotebookError(
                    f"a task has no {role} cell",
                    where=path,
                    expected=f"a section `### {task.id} · {task.title}` with a {role} cell",
                    got=task.id,
                    todo=f"add a code cell with ### {BEGIN}" if role == SOLUTION else f"add {check_source(task.id)}",
                )


def _base_name(cell_label: Label) -> str:
    return f"{cell_label.task.replace('.', '-')}-{cell_label.role}"


def _new_name(cell_label: Label, names: set[str]) -> str:
    base = _base_name(cell_label)
    numbered = cell_label.role in ("given", "result")
    candidates = (f"{base}-{n}" if numbered or n > 1 else base for n in itertools.count(1))
    return next(name for name in candidates if name not in names)


def _write_metadata(cell: NotebookNode, cell_label: Label, name: str, project: Project) -> None:
    flags = FLAGS[cell_label.role]
    cell.id = name
    cell.metadata["deletable"] = False
    cell.metadata.pop("editable", None)
    if flags["locked"]:
        cell.metadata["editable"] = False
    varies = {VARIES: templates} if (templates := templates_of(cell)) else {}
    cell.metadata["mlhood"] = {"task": cell_label.task, "role": cell_label.role, **varies}
    cell.metadata["nbgrader"] = {**flags, "grade_id": name, "schema_version": 3, "task": False}
    if cell_label.role == "check":
        cell.source = check_source(cell_label.task)
    if flags["grade"]:
        task = project.task(cell_label.task)
        cell.metadata["nbgrader"]["points"] = task.points if task else 0
