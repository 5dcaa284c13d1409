"""Reading, writing and normalizing notebooks, and the labels of their cells: project, task and role."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.files.atomic import write_atomic
from mlhood.files.paths import did_you_mean, file_format, make_folder
from mlhood.files.untrusted_json import has_at_most
from mlhood.grading.checks.task import Project
from mlhood.grading.projects import PROJECTS

MAX_NOTEBOOK_BYTES = 64 << 20
MAX_TEXT_MEMORY = 33 << 20  # one wide character makes all of a text four times as large, and it is copied five times
MAX_NOTEBOOK_VALUES = 200_000  # in its JSON; each takes up to 800 bytes once it is read, and the course's have 6,000
# files that are submitted by mistake, by format
OTHER_FILES = {
    "PDF": "a PDF document",
    "ZIP": "a ZIP archive",
    "gzip": "a gzip archive",
    "PNG": "a picture (PNG)",
    "JPEG": "a picture (JPEG)",
    "UTF-16": "text in UTF-16",
}
ADVICE = "give the path of a notebook, such as P1.ipynb"
PROJECT_NAME = re.compile(r"([Pp][1-9])(\.ipynb)?")
CHECK_CALL = re.compile(r"""mlhood\.check\(["']([A-Z]\d\.\d+)["']\)""")
CONFLICT = re.compile(r"^<{7} .*^>{7} ", re.MULTILINE | re.DOTALL)
WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"
COLOURS = 256
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def read(path: str | Path) -> NotebookNode:
    """Read a notebook and convert it to the current format.

    Raises:
        NotebookError: There is no such file, or it is not a notebook.
    """
    path = Path(path)
    text = _read_text(path)
    if sys.getsizeof(text) > MAX_TEXT_MEMORY:
        raise _too_large(path, "a longer text, or one with characters of 2 or 4 bytes")
    if not has_at_most(text.encode("utf-8", "replace"), MAX_NOTEBOOK_VALUES):
        raise _too_large(path, "more values")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        if CONFLICT.search(text):
            raise NotebookError(
                "git could not merge two versions of this notebook",
                where=path,
                expected="one version",
                got="lines with <<<<<<< and >>>>>>>, between which are both",
                todo=f"take one of them by `git checkout --ours {path.name}` or `--theirs`, or merge with nbdime",
            ) from None
        raise NotebookError(
            "the file is not JSON, so it is not a notebook",
            where=path,
            expected="a file that Jupyter has saved",
            got=f"{error}; the file begins with {text[:40]!r}",
            todo="download or save it again as .ipynb; a version saved earlier may be in .ipynb_checkpoints",
        ) from None
    return _as_notebook(document, path)


def require_notebook(path: Path) -> None:
    """Refuse a path where there is no file.

    Raises:
        NotebookError: There is none; the error names the nearest.
    """
    if path.is_file():
        return
    got, near = ("a folder", None) if path.is_dir() else ("no file of that name", _did_you_mean(path))
    raise NotebookError("there is no notebook", where=path, expected="a .ipynb file", got=got, todo=near or ADVICE)


def _read_text(path: Path) -> str:
    require_notebook(path)
    if path.stat().st_size > MAX_NOTEBOOK_BYTES:
        raise _too_large(path, f"{path.stat().st_size >> 20} MiB")
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        start = error.object[:8]
        raise NotebookError(
            "the file is not text, so it is not a notebook",
            where=path,
            expected="a file that Jupyter has saved",
            got=OTHER_FILES.get(file_format(start) or "", f"a file that begins with {start}"),
            todo="take the .ipynb file itself, not a page printed from it or an archive",
        ) from None
    except OSError as error:
        raise NotebookError("the notebook cannot be read", where=path, got=str(error), todo=ADVICE) from None


def _did_you_mean(path: Path) -> str | None:
    name = path if path.suffix else path.with_suffix(".ipynb")
    return did_you_mean(name) or did_you_mean(course_folder(path.parent) / name.name)


def _too_large(path: Path, got: str) -> NotebookError:
    return NotebookError(
        "the notebook is too large",
        where=path,
        expected=f"at most {MAX_NOTEBOOK_BYTES >> 20} MiB, {MAX_TEXT_MEMORY >> 20} MiB of text in memory, and "
        f"{MAX_NOTEBOOK_VALUES:,} values in its JSON",
        got=got,
        todo="clear its outputs (Edit > Clear Outputs of All Cells) and save it",
    )


def _as_notebook(document: object, path: Path) -> NotebookNode:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing and duplicate cell ids, which nbformat replaces
            text = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace").decode()  # no lone surrogates
            # not `nbformat.reads`, which would validate it, too
            notebook = nbformat.convert(nbformat.reader.reads(text), 4)
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
    """Write a notebook as Jupyter does, atomically.

    Raises:
        OutputError: The folder is missing, full or read-only.
    """
    write_text(path, notebook_text(notebook))


def notebook_text(notebook: NotebookNode) -> str:
    """Return the text of a notebook's file, as Jupyter writes it."""
    return nbformat.writes(notebook) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, and create its folder.

    Raises:
        OutputError: The folder is missing, full or read-only.
    """
    make_folder(path.parent)
    write_atomic(path, text.encode("utf-8", "replace"))


@dataclass(frozen=True)
class Label:
    """The task of a cell and its role: `given`, `solution`, `check`, `result` or `question`."""

    task: str
    role: str


def label(cell: NotebookNode) -> Label | None:
    """Return the label of a cell, or None for cells that belong to no task, such as those that a student added.

    It is in the cell's metadata, and in its name: some editors lose the one, some the other.
    """
    metadata = cell.metadata.get("mlhood")
    if isinstance(metadata, dict) and isinstance(metadata.get("task"), str):
        return Label(metadata["task"], str(metadata.get("role", "given")))
    return parse_label(cell_name(cell))


def parse_label(name: str) -> Label | None:
    """Return the label in a cell's name: `P1-3-given-2` is a given cell of P1.3."""
    project, _, remainder = name.partition("-")
    number, _, role = remainder.partition("-")
    if project not in PROJECTS or not number.isdigit() or not role:
        return None
    return Label(f"{project}.{number}", role.partition("-")[0])


def cell_names(cell: NotebookNode) -> tuple[str, str]:
    """Return nbgrader's `grade_id` of a cell and its cell id, empty if it has none."""
    grader = cell.metadata.get("nbgrader")
    grade_id = grader.get("grade_id") if isinstance(grader, dict) else None
    return str(grade_id or ""), str(cell.get("id", ""))


def cell_name(cell: NotebookNode) -> str:
    """Return the name of a cell of the course: nbgrader's `grade_id`, else its cell id."""
    grade_id, cell_id = cell_names(cell)
    return grade_id or cell_id


def check_source(task: str) -> str:
    """Return the source of the check cell of a task."""
    return f'mlhood.check("{task}")'


def course_notebooks(folder: Path) -> list[Path]:
    """Return the notebooks `P1.ipynb` to `P9.ipynb` of a folder, or of the course that the folder is in.

    Raises:
        NotebookError: There is none.
    """
    paths = sorted(course_folder(folder).glob("P[1-9].ipynb"))
    if not paths:
        raise NotebookError(
            "there is no notebook of the course here",
            where=folder,
            expected="P1.ipynb or another notebook of the course",
            todo="change to the folder of the course, or pass the notebooks: mlhood run PATH",
        )
    return paths


def course_folder(folder: Path) -> Path:
    """Return the folder, if it has a notebook of the course; else the course that it is in, if any; else the folder."""
    parents = (parent for parent in folder.resolve().parents if (parent / "pyproject.toml").is_file())
    return next((each for each in (folder, *parents) if any(each.glob("P[1-9].ipynb"))), folder)


def find_notebook(path: Path) -> Path:
    """Return the path of a notebook, for which its name will do, `P3` or `p3.ipynb`, from any folder of the course.

    A path that is neither is returned as it is, so that whoever reads it says what is wrong.
    """
    name = PROJECT_NAME.fullmatch(path.name)
    if path.exists() or name is None:
        return path
    named = path.with_name(f"{name[1].upper()}.ipynb")
    if named.is_file() or path.parent != Path():
        return named
    course = course_folder(Path.cwd()) / named
    return course if course.is_file() else named


def project_of(notebook: NotebookNode, path: str | Path) -> Project:
    """Return the project of a notebook: by its metadata, else by the labels of its cells or their calls of checks.

    Raises:
        NotebookError: It has no cell of any project.
    """
    metadata = notebook.metadata.get("mlhood", {})
    declared = str(metadata.get("project", "")) if isinstance(metadata, dict) else ""
    tasks = [cell_label.task for cell in notebook.cells if (cell_label := label(cell))]
    tasks += [call[1] for cell in notebook.cells if (call := CHECK_CALL.fullmatch(cell.source.strip()))]
    for project_id in [declared, *(task.partition(".")[0] for task in tasks)]:
        if project_id in PROJECTS and tasks:
            return PROJECTS[project_id]
    raise NotebookError(
        "the notebook has no task of the course",
        where=path,
        expected=f"cells of one of {', '.join(PROJECTS)}",
        got=f"{len(notebook.cells)} cells, none of which belongs to a task",
        todo="start again from the notebook of the course and paste your solutions into its cells",
    )


def clean(notebook: NotebookNode) -> None:
    """Normalize a notebook in place.

    1. Execution counts begin at 1, in the order of the cells.
    2. Execution times, widget state and the version of the Python that ran it are removed.
    3. Adjacent outputs of the same stream are merged.
    4. Pictures are converted to a palette of 256 colours, to keep the notebook small.
    """
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"] = NotebookNode(KERNEL)
    notebook.metadata["language_info"] = NotebookNode(name="python")
    count = 0
    for cell in notebook.cells:
        for key in ("execution", "ExecuteTime", "collapsed"):
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            count += cell.execution_count is not None
            _clean_outputs(cell, count)


def clear_outputs(notebook: NotebookNode) -> None:
    """Remove the outputs and execution counts of all cells, in place."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _clean_outputs(cell: NotebookNode, count: int) -> None:
    if cell.execution_count is not None:
        cell.execution_count = count
    cell.outputs = _merge_streams([output for output in cell.outputs if WIDGET not in output.get("data", {})])
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count
        if PNG in output.get("data", {}):
            output.data[PNG] = _with_palette(output.data[PNG])


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def _with_palette(png: str) -> str:
    """Return a picture with a palette, or the picture itself if that is not smaller."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        if image.mode == "P":
            return png
        buffer = io.BytesIO()
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    converted = base64.b64encode(buffer.getvalue()).decode()
    return converted if len(converted) < len(png) else png
