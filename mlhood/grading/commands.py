"""The grading commands of the command line; `cli` adds them to its own."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mlhood.grading.execution.run import Outcome, Run

Notebook = Annotated[Path, typer.Argument(help="A notebook of the course, such as P1.ipynb.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print plain data for a program to read.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (run, check, validate, release):
        app.command()(command)


def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(help="Notebooks to run; by default P1.ipynb and its like of this folder."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("out"),
    write_back: Annotated[
        bool,
        typer.Option("--write-back", help="Store the fresh outputs in the notebooks themselves (for maintainers)."),
    ] = False,
) -> None:
    """Execute the course's notebooks, mark them, and write executed copies and a report.

    The notebooks themselves stay as they are. The exit code is 0 for full marks (checks that this machine
    cannot ask do not count), 1 if points were lost or a cell failed, 2 if the work could not start, 130 after
    Ctrl-C.

    Example: mlhood run

    Example: mlhood run P1.ipynb --out results
    """
    from rich.console import Console

    from mlhood.grading.execution import run as running
    from mlhood.grading.execution.progress import watch

    paths = notebooks or running.course_notebooks(Path.cwd())
    with watch(Console(stderr=True)) as shown:
        outcome = running.run(paths, out, shown, write_back=write_back)
    typer.echo(_run_text(outcome))
    raise typer.Exit(outcome.code)


def _run_text(outcome: Outcome) -> str:
    parts = [_one_run_text(run) for run in outcome.runs]
    parts.append(str(outcome.error) if outcome.error else f"report: {_short(outcome.report)}")
    return "\n\n".join(parts)


def _one_run_text(run: Run) -> str:
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
        lines.append(f"files: {_short(run.folder)}")
    return "\n".join(lines)


def _short(path: Path) -> Path:
    """The path from here, where it lies below."""
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


def check(
    notebook: Notebook,
    as_json: AsJson = False,
    task: Annotated[list[str] | None, typer.Option(help="Report only this task; can be given several times.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Draw the inputs of the checks from this seed; by default from a new one.")
    ] = None,
    keep_files: Annotated[
        Path | None, typer.Option(help="An empty folder for the files that the notebook writes.")
    ] = None,
) -> None:
    """Mark a notebook: run it from the top in a folder of its own, and ask every check.

    The exit code is 0 for full marks, 1 if points were lost, 2 if the notebook could not be marked.

    Example: mlhood check P1.ipynb

    Example: mlhood check P1.ipynb --task P1.3 --json
    """
    from mlhood.grading.execution.grade_file import grade_file, only
    from mlhood.grading.reports.marks_text import full_text

    wanted = only(task or [], notebook)
    with _shown(notebook.stem, quiet=as_json) as on_step:
        marks = wanted(grade_file(notebook, seed=seed, keep=keep_files, on_step=on_step))
    said = f"{full_text(marks)}\nthe same inputs again: --seed {marks.seed}"
    typer.echo(json.dumps(marks.as_dict(), indent=2, default=str) if as_json else said)
    raise typer.Exit(0 if all(result.full for result in marks.tasks) else 1)


@contextlib.contextmanager
def _shown(name: str, *, quiet: bool):
    """A bar on the terminal while one notebook runs; nothing where the output is for a program or a log."""
    from rich.console import Console

    from mlhood.grading.execution.progress import BarWatch

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda step: None
        return
    with BarWatch(console) as watch:
        watch.begin(name, 1, 1)
        yield watch.step
        watch.end(None)


def validate(notebook: Notebook, as_json: AsJson = False) -> None:
    """Say whether a notebook is ready to hand in, and if not, what to repair.

    The exit code is 0 if it is ready, 1 if something is to repair, 2 if it could not be run.

    Example: mlhood validate P1.ipynb
    """
    from mlhood.grading.student.validate import validate as validated

    with _shown(notebook.stem, quiet=as_json) as on_step:
        result = validated(notebook, on_step=on_step)
    typer.echo(json.dumps(result.as_dict(), indent=2) if as_json else result.text())
    raise typer.Exit(0 if result.ready else 1)


def release(
    out: Annotated[Path, typer.Option(help="Folder of the student edition: new or empty.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Write into a folder that holds files; other files stay as they are."),
    ] = False,
    gradescope: Annotated[
        bool,
        typer.Option("--gradescope", help="Write the autograder for Gradescope, too: DIR-gradescope.zip."),
    ] = False,
) -> None:
    """Make the student edition: a repository of its own, with the solutions taken out.

    Run it in the folder of the course. A notebook that would be replaced is kept beside the new one. The edition has a
    workflow by which GitHub Classroom shows points.

    Example: mlhood release --out ../student

    Example: mlhood release --out ../student --gradescope
    """
    from mlhood.grading.student.release import release as released

    done = released(Path.cwd(), out, force=force, gradescope=gradescope)
    typer.echo(done.text())
