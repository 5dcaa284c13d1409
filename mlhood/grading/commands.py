"""The commands that mark a notebook: `mlhood run`, `check` and `validate`."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlhood.files.terminal import echo
from mlhood.grading.variants.parameter import variant_option

if TYPE_CHECKING:
    from mlhood.run.run import NotebookRun


def find(paths: Path | list[Path] | None) -> Path | list[Path] | None:
    """Replace names of projects by their notebooks."""
    from mlhood.grading.notebooks.notebook import find_notebook

    return find_notebook(paths) if isinstance(paths, Path) else [find_notebook(path) for path in paths or []] or None


Notebook = Annotated[
    Path, typer.Argument(callback=find, help="A notebook of the course, by its path or name: P1.ipynb or P1.")
]
TASK_NAME = re.compile(r"([Pp][1-9])\.\d+")
AsJson = Annotated[bool, typer.Option("--json", help="Print plain data for a program to read.")]


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (run, check, validate):
        app.command()(command)


def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(callback=find, help="Notebooks to run, such as P3; by default all of the course."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; by default out, for a variant beside the course.")
    ] = None,
    variant: Annotated[str | None, variant_option("Run the solved notebooks of this variant of the course.")] = None,
    write_back: Annotated[
        bool, typer.Option("--write-back", help="Store the new outputs in the notebooks themselves (for maintainers).")
    ] = False,
) -> None:
    """Execute the course's notebooks, mark them, and write executed copies and a report.

    The notebooks themselves are not modified. The exit code is 0 for full marks (checks that this machine
    cannot run do not count), 1 if points were lost or a cell failed, 2 if the work could not start, 130 after
    Ctrl-C.

    Example: mlhood run

    Example: mlhood run P1 --out results

    Example: mlhood run --variant autumn-4f9c --out ../autumn
    """
    from mlhood.grading.notebooks.notebook import course_notebooks, require_notebook
    from mlhood.grading.progress import CommandProgress
    from mlhood.run.report import write_report
    from mlhood.run.run import require_for_variant, run_notebooks, variant_folder

    paths = notebooks or course_notebooks(Path.cwd())
    for path in paths:  # a mistyped name shows before the others have run for minutes
        require_notebook(path)
    target = out or (variant_folder(paths[0].parent, variant) if variant else Path("out"))
    if variant:
        require_for_variant(paths, target, write_back)
    with CommandProgress() as display:
        outcome = run_notebooks(paths, target, display, write_report, write_back=write_back, variant=variant or "")
    report = str(outcome.error) if outcome.report is None else f"report: {relative(outcome.report)}"
    echo("\n\n".join([*map(_run_text, outcome.runs), report]))
    raise typer.Exit(outcome.code)


def _run_text(run: NotebookRun) -> str:
    from mlhood.grading.reports.marks_text import summary_text, task_text

    lines = [f"{run.name}: {run.project.title}" if run.project else str(run.source)]
    if run.marks and run.marks.tasks:
        lines += [task_text(task) for task in run.marks.tasks if not task.full]
        lines.append(summary_text(run.marks))
    if run.error:
        lines.append(str(run.error))
    lines += [f"a cell failed: {cell}" for cell in run.failed_cells]
    lines += [f"note: {note}" for note in run.notes]
    if run.interrupted:
        lines.append("stopped before the end; what was finished is kept")
    if run.folder:
        lines.append(f"files: {relative(run.folder)}")
    return "\n".join(lines)


def relative(path: Path) -> Path:
    """Return the path relative to the current folder, if it is below it."""
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


def check(
    notebook: Annotated[
        Path, typer.Argument(help="A notebook of the course, by its path or name, or one of its tasks: P1, or P1.3.")
    ],
    as_json: AsJson = False,
    task: Annotated[list[str] | None, typer.Option(help="Report only this task; can be given several times.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw the inputs of the checks from this seed; by default from a new one.")
    ] = None,
    hints: Annotated[bool, typer.Option("--hints", help="Also say how to go on where a check failed.")] = False,
    variant: Annotated[str | None, variant_option("Mark it as this variant (for instructors).")] = None,
) -> None:
    """Mark a notebook: run it from the top in a temporary folder, and run every check.

    A check that fails says what is wrong and for which input; with --hints, also how to go on.

    The exit code is 0 for full marks, 1 if points were lost, 2 if the notebook could not be marked.

    Example: mlhood check P1

    Example: mlhood check P1.3 --hints

    Example: mlhood check P1.ipynb --task P1.3 --task P1.4 --json
    """
    from mlhood.grading.checks.marks import without_hints
    from mlhood.grading.execution.grade_notebook import RunSettings, grade_file, task_filter
    from mlhood.grading.reports.marks_text import full_text

    notebook, named = _split_task(notebook)
    select_tasks = task_filter([*named, *(task or [])], notebook)
    with _progress(notebook.stem, quiet=as_json) as on_step:
        marks = select_tasks(grade_file(notebook, RunSettings(seed, on_step=on_step), variant_name=variant or ""))
    shown = marks if hints else without_hints(marks)
    more = "" if shown == marks else "\nhow to go on: --hints"
    text = f"{full_text(shown)}{more}\nthe same inputs again: --seed {marks.seed}"
    echo(json.dumps(marks.as_dict(), indent=2, default=str) if as_json else text)
    raise typer.Exit(0 if all(result.full for result in marks.tasks) else 1)


def _split_task(path: Path) -> tuple[Path, list[str]]:
    """Return the notebook and the tasks that `P1`, `P1.ipynb` or `P1.3` names."""
    from mlhood.grading.notebooks.notebook import find_notebook

    task = TASK_NAME.fullmatch(str(path))
    if task is None or path.exists():
        return find_notebook(path), []
    return find_notebook(Path(task[1])), [task[0]]


@contextlib.contextmanager
def _progress(name: str, *, quiet: bool):
    """Show how far a notebook is while it runs; nothing if the output is for a program."""
    from mlhood.grading.progress import CommandProgress

    if quiet:
        yield lambda step: None
        return
    with CommandProgress() as display:
        display.begin(name, 1, 1)
        yield display.step
        display.end(None)


def validate(notebook: Notebook) -> None:
    """Report whether a notebook is ready to hand in, and if not, what to repair.

    The exit code is 0 if it is ready, 1 if something must be repaired, 2 if it could not be run.

    Example: mlhood validate P1
    """
    from mlhood.grading.student.validate import validate as validate_notebook

    with _progress(notebook.stem, quiet=False) as on_step:
        result = validate_notebook(notebook, on_step=on_step)
    echo(result.text())
    raise typer.Exit(0 if result.ready else 1)
