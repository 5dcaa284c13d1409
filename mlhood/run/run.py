"""`mlhood run`: execute the course's notebooks, write executed copies and a report, and return the marks."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nbformat import NotebookNode

from mlhood.errors import GradingError, MlhoodError, OutputError
from mlhood.grading.checks.marks import Marks, TaskResult
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import CellStep, RunSettings, grade
from mlhood.grading.notebooks.notebook import clean, clear_outputs, project_of, read, write, write_text
from mlhood.grading.notebooks.source_notebook import source_of_variant
from mlhood.grading.projects.collect import VARIANT
from mlhood.grading.projects.collect import variant as variant_project
from mlhood.grading.variants.parameter import require_variant_name
from mlhood.notebook_view.github_view import github_page
from mlhood.run import output_folder
from mlhood.run.outputs import uncertain

EXIT_INTERRUPTED = 130
EXIT_ERROR = 2
SEED = 0  # the same inputs in every run, so that runs can be compared


@dataclass
class NotebookRun:
    """The run of one notebook: the results of the tasks it reached, and what stopped it, if anything.

    `executed` is the notebook with the outputs of this run.
    """

    source: Path
    name: str
    project: Project | None = None
    folder: Path | None = None
    marks: Marks | None = None
    executed: NotebookNode | None = None
    error: MlhoodError | None = None
    interrupted: bool = False
    failed_cells: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether the notebook was run to its end."""
        return self.marks is not None and self.error is None and not self.interrupted

    @property
    def full(self) -> bool:
        """Whether it ran to its end, no cell failed and no point was lost; skipped checks do not count."""
        tasks = self.marks.tasks if self.marks else ()
        return self.complete and not self.failed_cells and all(task.full for task in tasks)

    def as_dict(self) -> dict:
        """Return plain data for `marks.json`."""
        return {
            "notebook": str(self.source),
            "folder": str(self.folder) if self.folder else None,
            "complete": self.complete,
            "interrupted": self.interrupted,
            "error": str(self.error) if self.error else None,
            "failed_cells": list(self.failed_cells),
            "notes": self.notes,
            "marks": self.marks.as_dict() if self.marks else None,
        }


@dataclass(frozen=True)
class RunOutcome:
    """The runs of one command, its exit code, and the report or the error that prevented it."""

    runs: tuple[NotebookRun, ...]
    code: int
    report: Path | None = None
    error: MlhoodError | None = None


class RunObserver(Protocol):
    """Receives the progress of a run."""

    def begin(self, name: str, number: int, count: int) -> None:
        """A notebook begins."""

    def step(self, step: CellStep) -> None:
        """A cell or the grading of a task begins."""

    def end(self, run: NotebookRun) -> None:
        """A notebook is done."""


ReportWriter = Callable[[Sequence[NotebookRun], Path], Path]


def run_notebooks(
    notebooks: Iterable[Path],
    out: Path,
    observer: RunObserver,
    write_report: ReportWriter,
    *,
    write_back: bool = False,
    variant: str = "",
) -> RunOutcome:
    """Run and grade notebooks, one after the other; an error in one does not stop the next.

    Args:
        notebooks: Their paths; the files are not modified unless `write_back`.
        out: Folder of the results: for each notebook a folder with the executed copy and the files that it
            wrote, and the report.
        observer: Receives the progress.
        write_report: Writes the report about these runs into the folder and returns its path.
        write_back: Whether to store the new outputs in the notebooks themselves, if no cell failed.
        variant: The name of a variant, whose solved notebooks are made from these and run.

    Raises:
        OutputError: The folder cannot be written; nothing has been run then.
    """
    out = output_folder.prepare(out)
    runs = _with_unique_names(notebooks)
    for number, run in enumerate(runs, start=1):
        observer.begin(run.name, number, len(runs))
        with kernels_of_variant(variant):
            _run(run, out, observer, write_back, variant, earlier=runs[: number - 1])
        observer.end(run)
        if run.interrupted:
            runs = runs[:number]
            break
    code = EXIT_INTERRUPTED if runs and runs[-1].interrupted else 0 if all(run.full for run in runs) else 1
    try:
        return RunOutcome(tuple(runs), code, write_report(runs, out))
    except OutputError as error:  # the marks are printed all the same
        return RunOutcome(tuple(runs), EXIT_ERROR, error=error)


def _with_unique_names(notebooks: Iterable[Path]) -> list[NotebookRun]:
    runs: list[NotebookRun] = []
    for path in notebooks:
        same = sum(run.source.stem == path.stem for run in runs)
        runs.append(NotebookRun(path, f"{path.stem}-{same + 1}" if same else path.stem))
    return runs


def _run(
    run: NotebookRun,
    out: Path,
    observer: RunObserver,
    write_back: bool,
    variant_name: str,
    earlier: Sequence[NotebookRun],
) -> None:
    """Run one notebook and write its results, even if it is interrupted."""
    try:
        notebook = read(run.source)
        run.project = project_of(notebook, run.source)
        if variant_name:
            run.project = variant_project(run.project, variant_name)
            notebook = source_of_variant(notebook, run.project)
        run.folder, kept = output_folder.create_empty(out, run.name)
        if kept:
            run.notes.append(f"files that no run wrote were moved to {kept}")
        _copy_what_it_reads(run.project, run.folder, earlier)
        _execute(run, run.project, run.folder, notebook, observer)
        _save(run, run.folder, notebook, write_back)
    except MlhoodError as error:
        run.error = error
    except KeyboardInterrupt:
        run.interrupted = True


def _copy_what_it_reads(project: Project, folder: Path, earlier: Sequence[NotebookRun]) -> None:
    """Copy the files that it reads into its folder from notebooks that ran before it and lost no points."""
    for done in earlier:
        for name in project.reads:
            if done.full and done.folder and (done.folder / name).is_file():
                shutil.copyfile(done.folder / name, folder / name)


def _execute(run: NotebookRun, project: Project, folder: Path, notebook: NotebookNode, observer: RunObserver) -> None:
    clear_outputs(notebook)
    results: list[TaskResult] = []
    settings = RunSettings(SEED, run_check_cells=True, on_step=observer.step, on_result=results.append)
    began = time.monotonic()
    try:
        run.marks = grade(notebook, project, folder, settings)
    except KeyboardInterrupt:
        run.interrupted = True
    except MlhoodError as error:
        run.error = error
    run.marks = run.marks or Marks(project.id, project.title, tuple(results), time.monotonic() - began)
    run.failed_cells = _failed_cells(notebook)
    clean(notebook)
    run.executed = notebook


def _failed_cells(notebook: NotebookNode) -> tuple[str, ...]:
    """Return the cells that stopped with an error, except those that declare it by nbval's tag."""
    failed = []
    for cell in notebook.cells:
        errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        if errors and "raises-exception" not in cell.metadata.get("tags", []):
            first = next((line for line in cell.source.splitlines() if line.strip()), "")
            failed.append(f"`{first[:60]}`: {errors[-1].ename}: {errors[-1].evalue}"[:300])
    return tuple(failed)


def _save(run: NotebookRun, folder: Path, notebook: NotebookNode, write_back: bool) -> None:
    write(notebook, folder / f"{run.name}.ipynb")
    try:
        page = github_page(notebook, run.name)
    except Exception:  # whatever nbconvert's templates make of an output, the run is not lost
        run.notes.append("the executed notebook could not be turned into a page; open the .ipynb instead")
    else:
        write_text(folder / f"{run.name}.html", page)
    try:
        output_folder.write_manifest(folder)
    except OSError as error:
        raise OutputError("the result cannot be written", where=folder, got=error.strerror) from None
    if write_back:
        if run.failed_cells or not run.complete:
            run.notes.append(f"{run.source.name} was not written back, since a cell failed")
        elif faults := list(uncertain(notebook)):
            what = f"{run.source.name} was not written back, since its measurements are too uncertain"
            run.notes.append(f"{what}: {'; '.join(faults)}; run it on an idle machine")
        else:
            write(notebook, run.source)


# -- the solved notebooks of a variant


def variant_folder(course: Path, variant_name: str) -> Path:
    """Return the folder for the source notebooks of a variant: beside that of the course."""
    course = course.resolve()
    return course.with_name(f"{course.name}-{re.sub(r'[^A-Za-z0-9.-]', '-', variant_name)}")


def require_for_variant(notebooks: Iterable[Path], out: Path, write_back: bool) -> None:
    """Refuse to store what belongs to a variant in the course.

    Raises:
        OutputError: The folder of the results is inside the course's.
        GradingError: The outputs would be written back into the public source notebooks.
    """
    if write_back:
        raise GradingError(
            "the outputs of a variant cannot be written back",
            where="--write-back",
            expected="the course as it is published",
            todo="leave it out: the executed notebooks of the variant are in the folder of the results",
        )
    for course in {path.resolve().parent for path in notebooks}:
        if out.resolve().is_relative_to(course):
            raise OutputError(
                "solved notebooks of a variant do not belong in the course's folder, from which they get published",
                where=out,
                expected=f"a folder outside of {course}",
                todo=f"choose another one: --out {variant_folder(course, 'solved')}",
            )


@contextlib.contextmanager
def kernels_of_variant(variant_name: str) -> Iterator[None]:
    """Have the processes that are started know the variant, so that `mlhood.check` in a cell asks for its values."""
    if not variant_name:
        yield
        return
    require_variant_name(variant_name)
    before = os.environ.get(VARIANT)
    os.environ[VARIANT] = variant_name
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIANT]
        else:
            os.environ[VARIANT] = before
