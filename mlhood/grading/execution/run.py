"""The main job: execute the course's notebooks, write executed copies and a report, and give the marks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nbformat import NotebookNode

from mlhood.errors import MlhoodError, NotebookError, OutputError
from mlhood.grading.checks.marks import Marks, TaskResult, total
from mlhood.grading.checks.task import Project
from mlhood.grading.execution import output_folder
from mlhood.grading.execution.grade_notebook import Step, grade
from mlhood.grading.notebooks.clean import clear, tidy
from mlhood.grading.notebooks.notebook import project_of, read, write, write_text
from mlhood.grading.notebooks.render import notebook_html
from mlhood.grading.reports.run_report import run_report
from mlhood.measure import machine

INTERRUPTED = 130
FAMILY_ERROR = 2


@dataclass
class Run:
    """What became of one notebook: the marks of the tasks it reached, and what stopped it, if anything."""

    source: Path
    name: str
    project: Project | None = None
    folder: Path | None = None
    marks: Marks | None = None
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
        """As plain data for `marks.json`."""
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
class Outcome:
    """All notebooks of one call, the report or why there is none, and the exit code of the command."""

    runs: tuple[Run, ...]
    report: Path
    code: int
    error: MlhoodError | None = None


class Watch(Protocol):
    """Is told how the work goes."""

    def begin(self, name: str, number: int, count: int) -> None:
        """A notebook begins."""
        ...

    def step(self, step: Step) -> None:
        """A cell or the marking of a task begins."""
        ...

    def end(self, run: Run) -> None:
        """A notebook is done."""
        ...


def course_notebooks(folder: Path) -> list[Path]:
    """The notebooks `P1.ipynb` to `P9.ipynb` of a folder.

    Raises:
        NotebookError: There is none.
    """
    found = sorted(folder.glob("P[1-9].ipynb"))
    if not found:
        raise NotebookError(
            "there is no notebook of the course here",
            where=folder,
            expected="P1.ipynb and its like",
            todo="go to the folder of the course, or name the notebooks: mlhood run PATH",
        )
    return found


def run(notebooks: Iterable[Path], out: Path, watch: Watch, *, write_back: bool = False) -> Outcome:
    """Execute and mark notebooks, one after the other; what goes wrong in one does not stop the next.

    Args:
        notebooks: Paths; the files stay as they are unless `write_back`.
        out: Folder of the results: for each notebook a folder with the executed copy and the files that it
            has written; `report.html` and `marks.json` about all.
        watch: Is told how the work goes.
        write_back: Whether to store the fresh outputs in the notebooks themselves, where no cell has failed.

    Raises:
        OutputError: The folder cannot be written; nothing has been run then.
    """
    out = output_folder.prepare(out)
    runs = _named(notebooks)
    for number, one in enumerate(runs, start=1):
        watch.begin(one.name, number, len(runs))
        _run(one, out, watch, write_back)
        watch.end(one)
        if one.interrupted:
            runs = runs[:number]
            break
    try:
        _save_report(runs, out)
    except OutputError as error:  # the marks are still told
        return Outcome(tuple(runs), out / "report.html", FAMILY_ERROR, error)
    return Outcome(tuple(runs), out / "report.html", _code(runs))


def _named(notebooks: Iterable[Path]) -> list[Run]:
    runs: list[Run] = []
    for path in notebooks:
        same = sum(run.source.stem == path.stem for run in runs)
        runs.append(Run(path, f"{path.stem}-{same + 1}" if same else path.stem))
    return runs


def _code(runs: list[Run]) -> int:
    if any(run.interrupted for run in runs):
        return INTERRUPTED
    return 0 if all(run.full for run in runs) else 1


def _run(one: Run, out: Path, watch: Watch, write_back: bool) -> None:
    """Run one notebook and write its results, also if it was interrupted."""
    try:
        notebook = read(one.source)
        one.project = project_of(notebook, one.source)
        one.folder, kept = output_folder.fresh(out, one.name)
        if kept:
            one.notes.append(f"files that no run had written were in the way and are now in {kept}")
        _execute(one, one.project, one.folder, notebook, watch)
        _save(one, one.folder, notebook, write_back)
    except MlhoodError as error:
        one.error = error
    except KeyboardInterrupt:
        one.interrupted = True


def _execute(one: Run, project: Project, folder: Path, notebook: NotebookNode, watch: Watch) -> None:
    clear(notebook)
    results: list[TaskResult] = []
    began = time.monotonic()
    try:
        one.marks = grade(notebook, project, folder, run_check_cells=True, on_step=watch.step, on_result=results.append)
    except KeyboardInterrupt:
        one.interrupted = True
    except MlhoodError as error:
        one.error = error
    one.marks = one.marks or total(project, tuple(results), time.monotonic() - began)
    one.failed_cells = _failures(notebook)
    tidy(notebook)


def _failures(notebook: NotebookNode) -> tuple[str, ...]:
    """The cells that stopped with an error, except those that announce it by nbval's tag."""
    failed = []
    for cell in notebook.cells:
        errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        if errors and "raises-exception" not in cell.metadata.get("tags", []):
            first = next((line for line in cell.source.splitlines() if line.strip()), "")
            failed.append(f"`{first[:60]}`: {errors[-1].ename}: {errors[-1].evalue}"[:300])
    return tuple(failed)


def _save(one: Run, folder: Path, notebook: NotebookNode, write_back: bool) -> None:
    write(notebook, folder / f"{one.name}.ipynb")
    page = notebook_html(notebook, one.name)
    if page is None:
        one.notes.append("the executed notebook could not be turned into a page; open the .ipynb instead")
    else:
        write_text(folder / f"{one.name}.html", page)
    try:
        output_folder.remember(folder)
    except OSError as error:
        raise OutputError("the result cannot be written", where=folder, got=error.strerror) from None
    if write_back and one.complete and not one.failed_cells:
        write(notebook, one.source)
    elif write_back:
        one.notes.append(f"{one.source.name} is left as it was, since not every cell has run well")


def _save_report(runs: list[Run], out: Path) -> None:
    facts = machine()
    document = {
        "format": "mlhood marks 1",
        "earned": sum(run.marks.earned for run in runs if run.marks),
        "points": sum(run.marks.points for run in runs if run.marks),
        "machine": facts.as_dict(),
        "notebooks": [run.as_dict() for run in runs],
    }
    write_text(out / "marks.json", json.dumps(document, indent=1, default=str) + "\n")
    write_text(out / "report.html", run_report(runs, out, facts))
