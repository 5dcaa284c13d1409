"""Grade one file: read a notebook, run it in a folder of its own, and return its marks."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from mlhood.errors import GradingError, OutputError
from mlhood.grading.checks.marks import Marks
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.notebooks.notebook import project_of, read


def grade_file(path: str | Path, settings: RunSettings | None = None, *, keep_files: str | Path | None = None) -> Marks:
    """Grade the notebook in a file. The file itself is not modified.

    Args:
        path: A notebook of the course.
        settings: How it is run.
        keep_files: An empty or new folder for the files that the notebook writes; by default they are deleted.

    Raises:
        NotebookError: The file is not a notebook of the course.
        OutputError: `keep_files` cannot be written, or is not empty.
        GradingError: No kernel can be started.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    with _working_folder(keep_files) as folder:
        return grade(notebook, project, folder, settings)


@contextlib.contextmanager
def _working_folder(keep_files: str | Path | None) -> Iterator[Path]:
    if keep_files is not None:
        yield empty_folder(Path(keep_files))
        return
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def empty_folder(folder: Path, *, option: str = "--keep-files") -> Path:
    """Create a folder and return its absolute path.

    A folder that holds files is rejected: an old file could be taken for a result of this run.

    Raises:
        OutputError: The folder cannot be created or written, or is not empty.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".mlhood-probe"
        present = sorted(entry.name for entry in folder.iterdir() if entry.name != probe.name)
        probe.write_bytes(b"written and removed to test whether this folder can be written")
        probe.unlink()
    except OSError as error:
        raise OutputError(
            "the folder cannot be written",
            where=folder,
            got=error.strerror or str(error),
            todo=f"choose another folder with {option}, or free space in this one",
        ) from None
    if present:
        raise OutputError(
            "the folder is not empty",
            where=folder,
            expected="a new or empty folder, so that no old file is taken for a result of this run",
            got=", ".join(present[:5]) + (" …" if len(present) > 5 else ""),
            todo=f"choose another folder with {option}",
        )
    return folder.resolve()


def task_filter(task_ids: Collection[str], path: str | Path) -> Callable[[Marks], Marks]:
    """Return a filter that leaves these tasks of a notebook's marks, or all if none is named.

    Raises:
        GradingError: The notebook's project has no such task.
        NotebookError: The file is not a notebook of the course.
    """
    project = project_of(read(path), path)
    for task_id in task_ids:
        if project.task(task_id) is None:
            expected = ", ".join(task.id for task in project.tasks)
            raise GradingError("there is no such task", where=task_id, expected=f"one of {expected}")
    return lambda marks: replace(
        marks, tasks=tuple(task for task in marks.tasks if not task_ids or task.id in task_ids)
    )
