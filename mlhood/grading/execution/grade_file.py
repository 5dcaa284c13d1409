"""Mark one file: read a notebook, run it in a folder of its own, and give its marks.

`mlhood check`, pytest and `mlhood run` all come through here or through `grade`.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from mlhood.errors import GradingError, OutputError
from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.execution.grade_notebook import Step, grade
from mlhood.grading.execution.kernel import Kernels
from mlhood.grading.notebooks.notebook import project_of, read


def grade_file(
    path: str | Path,
    *,
    seed: int | None = None,
    keep: str | Path | None = None,
    sandbox: Kernels | None = None,
    on_step: Callable[[Step], None] = lambda step: None,
    on_result: Callable[[TaskResult], None] = lambda result: None,
    alone: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> Marks:
    """Mark the notebook in a file. The file itself is left as it is.

    Args:
        path: A notebook of the course.
        seed: Inputs of the checks are drawn from it. By default it is drawn too, so that nobody knows it before; the
            marks tell it.
        keep: An empty or new folder for the files that the notebook writes; by default they go with the run.
        sandbox: Where the kernel for a foreign notebook comes from. Without one it runs with our rights.
        on_step: Told before every cell and every task.
        on_result: Told the result of a task as soon as there is one.
        alone: Entered while a timed task is in work (see `grade`).

    Raises:
        NotebookError: The file is no notebook of the course.
        OutputError: `keep` cannot be written, or holds files that could pass for the notebook's own.
        GradingError: No kernel can be started.
    """
    notebook = read(path)
    project = project_of(notebook, path)
    drawn = secrets.randbelow(2**31) if seed is None else seed
    with _working_folder(keep) as folder:
        return grade(
            notebook,
            project,
            folder,
            seed=drawn,
            sandbox=sandbox,
            on_step=on_step,
            on_result=on_result,
            alone=alone,
        )


@contextlib.contextmanager
def _working_folder(keep: str | Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    yield empty_folder(Path(keep))


def empty_folder(folder: Path, *, option: str = "--keep-files") -> Path:
    """Make a folder and return its full path.

    One that holds files is refused: an old file would pass for a result of this run.

    Raises:
        OutputError: The folder cannot be made or written, or holds something.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".mlhood-probe"
        held = sorted(entry.name for entry in folder.iterdir() if entry.name != probe.name)
        probe.write_bytes(b"written and removed to see that this folder can be written")
        probe.unlink()
    except OSError as error:
        raise OutputError(
            "the folder cannot be written",
            where=folder,
            got=error.strerror or str(error),
            todo=f"choose another folder with {option}, or make room in this one",
        ) from None
    if held:
        raise OutputError(
            "the folder is not empty",
            where=folder,
            expected="a new or empty folder, so that no old file passes for a result of this run",
            got=", ".join(held[:5]) + (" …" if len(held) > 5 else ""),
            todo=f"choose another folder with {option}",
        )
    return folder.resolve()


def only(task_ids: Collection[str], path: str | Path) -> Callable[[Marks], Marks]:
    """A filter that leaves these tasks of a notebook's marks, or all if none is named.

    Raises:
        GradingError: The notebook's project has no such task.
        NotebookError: The file is no notebook of the course.
    """
    project = project_of(read(path), path)
    for task_id in task_ids:
        if project.task(task_id) is None:
            known = ", ".join(task.id for task in project.tasks)
            raise GradingError("there is no such task", where=task_id, expected=f"one of {known}")
    return lambda marks: replace(
        marks, tasks=tuple(task for task in marks.tasks if not task_ids or task.id in task_ids)
    )
