"""Notebooks as the course knows them: which project, which cell belongs to which task, and in which role."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mlhood.errors import NotebookError, OutputError
from mlhood.files.atomic import write_atomic
from mlhood.grading.checks.task import Project
from mlhood.grading.projects import PROJECTS

BEGIN_SOLUTION = "### BEGIN SOLUTION"
END_SOLUTION = "### END SOLUTION"
MAX_NOTEBOOK_BYTES = 64 << 20
CHECKED = re.compile(r"""mlhood\.check\(["']([A-Z]\d)\.\d+["']\)""")  # a check cell that has lost its label


def read(path: str | Path) -> NotebookNode:
    """Read a notebook, in the newest format.

    Raises:
        NotebookError: There is no such file, or it is not a notebook.
    """
    path = Path(path)
    text = _read_text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotebookError(
            "the file is not JSON, so it is not a notebook",
            where=path,
            expected="a file that Jupyter has saved",
            got=f"{error}; it begins with {text[:40]!r}",
            todo="download or save it again as .ipynb; a version saved earlier may be in .ipynb_checkpoints",
        ) from None
    return _as_notebook(document, path)


def _read_text(path: Path) -> str:
    advice = "give the path of a notebook, such as P1.ipynb"
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no file of that name"
        raise NotebookError("there is no notebook", where=path, expected="a .ipynb file", got=got, todo=advice)
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        size = f"{path.stat().st_size >> 20} MiB"
        raise NotebookError(
            "the notebook is too large",
            where=path,
            expected="at most 64 MiB",
            got=size,
            todo="clear its outputs (Edit > Clear Outputs of All Cells) and save it",
        )
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors of Windows put a mark at the beginning
    except (OSError, UnicodeDecodeError) as error:
        raise NotebookError("the notebook cannot be read", where=path, got=str(error), todo=advice) from None


def _as_notebook(document: object, path: Path) -> NotebookNode:
    if not isinstance(document, dict) or not isinstance(document.get("cells", document.get("worksheets")), list):
        raise NotebookError(
            "the file is JSON, but it has no cells",
            where=path,
            expected="a notebook: an object with a list `cells`",
            got=f"{type(document).__name__} with {', '.join(map(str, list(document)[:6]))}"
            if isinstance(document, dict)
            else type(document).__name__,
            todo="start again from the notebook of the course and paste your solutions into its cells",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about cell ids that are missing or doubled, which nbformat mends
            whole = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace").decode()  # no half characters
            notebook = nbformat.reads(whole, as_version=4)
            nbformat.validate(notebook)
    except Exception as error:  # nbformat raises many kinds
        raise NotebookError(
            "the notebook's structure is damaged",
            where=path,
            expected="the notebook format, version 4",
            got=str(error).splitlines()[0][:200],
            todo="open it in Jupyter and save it, or start again from the notebook of the course",
        ) from None
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook as Jupyter does, whole or not at all.

    Raises:
        OutputError: The folder is missing, full or read-only.
    """
    write_text(path, nbformat.writes(notebook) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        OutputError: The folder is missing, full or read-only.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            "the result cannot be written",
            where=path,
            got=error.strerror or str(error),
            todo="choose another folder with --out, or make room in this one",
        ) from None
    write_atomic(path, text.encode("utf-8", "replace"))


@dataclass(frozen=True)
class Label:
    """Which task a cell belongs to, and as what: `given`, `solution`, `check` or `question`."""

    task: str
    role: str


def label(cell: NotebookNode) -> Label | None:
    """The label of a cell, or None for cells that belong to no task, such as those a student has added.

    A cell is known by nbgrader's `grade_id` or by its cell id, since some editors lose the one and some the other.
    """
    own = cell.metadata.get("mlhood")
    if isinstance(own, dict) and isinstance(own.get("task"), str):
        return Label(own["task"], str(own.get("role", "given")))
    return label_in(cell_name(cell))


def label_in(name: str) -> Label | None:
    """The label that a cell's name holds: `P1-3-given-2` is a given cell of P1.3."""
    project, _, rest = name.partition("-")
    number, _, role = rest.partition("-")
    if project not in PROJECTS or not number.isdigit() or not role:
        return None
    return Label(f"{project}.{number}", role.partition("-")[0])


def cell_name(cell: NotebookNode) -> str:
    """The name of a cell of the course: nbgrader's `grade_id`, else its cell id."""
    grader = cell.metadata.get("nbgrader")
    name = grader.get("grade_id") if isinstance(grader, dict) else None
    return str(name or cell.get("id", ""))


def check_source(task: str) -> str:
    """What the check cell of a task holds."""
    return f'mlhood.check("{task}")'


def project_of(notebook: NotebookNode, path: str | Path) -> Project:
    """The project that a notebook belongs to: by its own metadata, else by its cells' labels or its calls of checks.

    Raises:
        NotebookError: It holds no cell of any project.
    """
    named = notebook.metadata.get("mlhood", {})
    wanted = str(named.get("project", "")) if isinstance(named, dict) else ""
    labels = [found.task.partition(".")[0] for cell in notebook.cells if (found := label(cell))]
    labels += [found[1] for cell in notebook.cells if (found := CHECKED.fullmatch(cell.source.strip()))]
    for project_id in [wanted, *labels]:
        if project_id in PROJECTS and labels:
            return PROJECTS[project_id]
    raise NotebookError(
        "the notebook holds no task of the course",
        where=path,
        expected=f"cells of one of {', '.join(PROJECTS)}",
        got=f"{len(notebook.cells)} cells, none of which belongs to a task",
        todo="start again from the notebook of the course and paste your solutions into its cells",
    )
