"""The grading commands of the command line; `cli` adds them to its own."""

from __future__ import annotations

import contextlib
import json
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlhood.errors import GradingError, nearest
from mlhood.files.terminal import echo
from mlhood.grading.variants.option import variant_option

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


class Audience(StrEnum):
    """Who gets an edition of their own."""

    CLASS = "class"
    STUDENT = "student"


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to the command line, and one to `bench`."""
    for command in (run, check, hint, validate, sync, preview, release):
        app.command()(command)
    bench.command("grading")(bench_grading)


def run(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(callback=find, help="Notebooks to run, such as P3; by default all of the course."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; by default out, for a variant beside the course.")
    ] = None,
    variant: Annotated[str | None, variant_option("Run the solved masters of this variant of the course.")] = None,
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
    from rich.console import Console

    from mlhood.grading.execution.progress import progress_display
    from mlhood.grading.notebooks.notebook import course_notebooks, require_notebook
    from mlhood.run.report import write_report
    from mlhood.run.run import run_notebooks
    from mlhood.run.variant import require_for_variant, variant_folder

    paths = notebooks or course_notebooks(Path.cwd())
    for path in paths:  # a mistyped name shows before the others have run for minutes
        require_notebook(path)
    target = out or (variant_folder(paths[0].parent, variant) if variant else Path("out"))
    if variant:
        require_for_variant(paths, target, write_back)
    with progress_display(Console(stderr=True)) as display:
        outcome = run_notebooks(paths, target, display, write_report, write_back=write_back, variant=variant or "")
    report = str(outcome.error) if outcome.report is None else f"report: {_relative(outcome.report)}"
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
        lines.append(f"files: {_relative(run.folder)}")
    return "\n".join(lines)


def _relative(path: Path) -> Path:
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
    keep_files: Annotated[
        Path | None, typer.Option(help="An empty folder for the files that the notebook writes.")
    ] = None,
    hints: Annotated[bool, typer.Option("--hints", help="Also say how to go on where a check failed.")] = False,
    variant: Annotated[str | None, variant_option("Mark it as this variant (for instructors).")] = None,
) -> None:
    """Mark a notebook: run it from the top in a folder of its own, and run every check.

    A check that fails says what is wrong and for which input; with --hints, also how to go on.

    The exit code is 0 for full marks, 1 if points were lost, 2 if the notebook could not be marked.

    Example: mlhood check P1

    Example: mlhood check P1.3

    Example: mlhood check P1.ipynb --task P1.3 --task P1.4 --json
    """
    from mlhood.grading.checks.marks import without_hints
    from mlhood.grading.execution.grade_notebook import RunSettings, grade_file, task_filter
    from mlhood.grading.reports.marks_text import full_text

    notebook, named = _split_task(notebook)
    select_tasks = task_filter([*named, *(task or [])], notebook)
    with _progress_bar(notebook.stem, quiet=as_json) as on_step:
        marks = select_tasks(
            grade_file(notebook, RunSettings(seed, on_step=on_step), keep_files=keep_files, word=variant or "")
        )
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


def hint(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task of the course, such as P1.3.")],
    notebook: Annotated[
        Path | None, typer.Argument(callback=find, help="The notebook with your solution; by default the task's own.")
    ] = None,
) -> None:
    """Mark a notebook, and say how to go on where a check of this task failed.

    It is `mlhood check --hints` for one task. The exit code is 0 for full marks in it, 1 if points were lost, 2 if
    there is no such task or the notebook could not be marked.

    Example: mlhood hint P2.4
    """
    check(notebook or _notebook_of(task), task=[task], hints=True)


def _notebook_of(task: str) -> Path:
    """Return the path of the notebook that a task belongs to."""
    from mlhood.grading.notebooks.notebook import find_notebook
    from mlhood.grading.projects import PROJECTS

    known = [task.id for project in PROJECTS.values() for task in project.tasks]
    if task.upper() in known:
        return find_notebook(Path(task.partition(".")[0]))
    expected = f"a task of {', '.join(PROJECTS)}, such as {known[0]}"
    raise GradingError("there is no such task", where=task, expected=expected, todo=nearest(task, known))


@contextlib.contextmanager
def _progress_bar(name: str, *, quiet: bool):
    """Show a bar while a notebook runs, on a terminal; nothing if the output is for a program or a log."""
    from rich.console import Console

    from mlhood.grading.execution.progress import ProgressBar

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda step: None
        return
    with ProgressBar(console) as bar:
        bar.begin(name, 1, 1)
        yield bar.step
        bar.end(None)


def validate(notebook: Notebook, as_json: AsJson = False) -> None:
    """Report whether a notebook is ready to hand in, and if not, what to repair.

    The exit code is 0 if it is ready, 1 if something must be repaired, 2 if it could not be run.

    Example: mlhood validate P1
    """
    from mlhood.grading.student.validate import validate as validate_notebook

    with _progress_bar(notebook.stem, quiet=as_json) as on_step:
        result = validate_notebook(notebook, on_step=on_step)
    echo(json.dumps(result.as_dict(), indent=2) if as_json else result.text())
    raise typer.Exit(0 if result.ready else 1)


def sync(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; list the files that are not in sync, with exit code 1.")
    ] = False,
) -> None:
    """Update what is copied from somewhere else: the notebooks' task metadata, cells in the package, the README.

    To add a task, write its section in the notebook (heading, solution cell with
    markers, check cell) and a check module in mlhood/grading/projects, then run this.

    Example: mlhood sync

    Example: mlhood sync --check
    """
    from mlhood.files.atomic import write_atomic
    from mlhood.files.paths import make_folder
    from mlhood.grading.notebooks.notebook import course_folder
    from mlhood.grading.notebooks.sync import outdated_files

    root = course_folder(Path.cwd())
    files = outdated_files(root)
    for name, content in files.items():
        if not check:
            make_folder((root / name).parent)
            write_atomic(root / name, content)
        echo(f"{'not in sync' if check else 'updated'}: {name}")
    if not files:
        echo("everything is in sync")
    raise typer.Exit(1 if check and files else 0)


def preview(
    notebooks: Annotated[
        list[Path] | None,
        typer.Argument(callback=find, help="Notebooks to show, such as P3; by default all of the course."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the pages and screenshots.")] = Path("out/preview"),
    screenshots: Annotated[bool, typer.Option(help="Make screenshots, which takes most of the time.")] = True,
) -> None:
    """Show notebooks as GitHub does, in light and dark, wide and narrow, and list what looks wrong.

    Each notebook becomes a page and screenshots. The exit code is 0 if nothing looks wrong, 1 if something does, 2 if
    there is no browser.

    Example: mlhood preview P1 --out pages
    """
    from mlhood.files.atomic import write_atomic
    from mlhood.files.paths import make_folder
    from mlhood.grading.notebooks.notebook import course_notebooks, read, require_notebook
    from mlhood.notebook_view.browser_view import open_browser, view
    from mlhood.notebook_view.github_view import github_page
    from mlhood.notebook_view.view_defects import defects

    found = []
    paths = notebooks or course_notebooks(Path.cwd())
    for path in paths:
        require_notebook(path)
    make_folder(out)
    with open_browser() as browser:
        for path in paths:
            notebook = read(path)
            page = github_page(notebook, path.stem, path.parent)
            found += defects(notebook, page, path.name)
            found += view(browser, page, path.stem, out if screenshots else None)
            echo(f"page: {_relative(write_atomic(out / f'{path.stem}.html', page.encode()))}")
    echo("\n".join(map(str, found)) or "nothing looks wrong")
    raise typer.Exit(1 if found else 0)


def release(
    out: Annotated[Path, typer.Option(help="Folder of the student edition: new or empty.")],
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty; other files in it are not changed.")
    ] = False,
    gradescope: Annotated[
        bool, typer.Option("--gradescope", help="Write the autograder for Gradescope, too: DIR-gradescope.zip.")
    ] = False,
    git: Annotated[
        bool | None,
        typer.Option("--git/--no-git", help="Make a git repository; by default unless DIR is inside another one."),
    ] = None,
    variant: Annotated[
        str | None, variant_option("Draw the tasks' parameters from this word, known to you alone.")
    ] = None,
    seed_file: Annotated[
        Path | None, typer.Option(help="The seed of the course, which seals the variant; by default DIR-seed.txt.")
    ] = None,
    masters: Annotated[
        Path | None,
        typer.Option(help="The folder of `mlhood run --variant WORD`: outputs of given cells come from it."),
    ] = None,
    variant_per: Annotated[
        Audience, typer.Option(help="One edition for the class, or DIR/A, DIR/B, ... for groups of students.")
    ] = Audience.CLASS,
    roster: Annotated[Path | None, typer.Option(help="CSV: student, name, email; dealt into groups.")] = None,
    groups: Annotated[int | None, typer.Option(help="How many groups of students there are; 4 by default.")] = None,
) -> None:
    """Write the student edition: a git repository of its own, with a first commit, without the solutions.

    A notebook that would be replaced is kept beside the new one. The edition has a
    workflow by which GitHub Classroom shows points. A repository that is in DIR already is not changed.

    With --variant it asks for other things than the course whose solutions are public.

    Example: mlhood release --out ../student

    Example: mlhood release --out ../student --gradescope

    Example: mlhood release --out ../student --variant autumn-4f9c

    Example: mlhood release --out ../student --variant autumn-4f9c --variant-per student --roster class.csv
    """
    from mlhood.grading.notebooks.notebook import course_folder
    from mlhood.grading.student.release import release as write_edition
    from mlhood.grading.student.variant_release import GROUPS, VariantOptions, release_variant

    root = course_folder(Path.cwd())
    if variant is None:
        per_student = variant_per if variant_per == Audience.STUDENT else None
        groups_options = {"--variant-per": per_student, "--roster": roster, "--groups": groups}
        _need_variant({"--seed-file": seed_file, "--masters": masters, **groups_options})
        echo(write_edition(root, out, force=force, gradescope=gradescope, git=git).text())
        return
    _need_roster(variant_per, roster, groups)
    options = VariantOptions(variant, seed_file, masters, roster, GROUPS if groups is None else groups)
    echo(release_variant(root, out, options, force=force, gradescope=gradescope, git=git).text())


def _need_roster(variant_per: Audience, roster: Path | None, groups: int | None) -> None:
    given = {"--variant-per student": variant_per == Audience.STUDENT, "--roster": roster is not None}
    wanted = groups is not None or any(given.values())
    missing = [name for name, is_given in given.items() if not is_given]
    if not wanted or not missing:
        return
    raise GradingError(
        "groups of students need both --variant-per student and --roster",
        where="mlhood release",
        got=f"no {' and no '.join(missing)}",
        todo="add what is missing, or leave out --variant-per, --roster and --groups for one edition for all",
    )


def _need_variant(options: dict[str, object]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise GradingError(
            f"{given[0]} is for a variant",
            where="mlhood release",
            expected="--variant WORD with it",
            todo="name the variant, or leave it out",
        )


def bench_grading(
    notebook: Annotated[
        Path, typer.Argument(callback=find, help="A solved notebook of the course, such as P1.")
    ] = Path("P1"),
    rounds: Annotated[int, typer.Option(min=1, help="How often each notebook is graded.")] = 9,
    only_tiny: Annotated[bool, typer.Option("--only-tiny", help="Grade only a tiny notebook.")] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the measurements into this file.")] = None,
) -> None:
    """Time what grading takes besides a notebook's own cells and checks: with a warm sandbox, a cold one, and none.

    The exit code is 0 if the median with a warm sandbox is at most a second, 1 if not.

    Example: mlhood bench grading --rounds 9 --json overhead.json
    """
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.grading.overhead import Overheads, measure, subject_of, tiny_subject
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    subjects = [tiny_subject(), *([] if only_tiny else [subject_of(notebook)])]
    overheads = Overheads()
    measure(overheads, subjects, rounds, lambda line: echo(line, err=True))
    echo(overheads.text())
    if as_json is not None:
        data = {"bench": "grading", "machine": machine().as_dict()} | overheads.as_dict()
        write_atomic(as_json, json.dumps(data, indent=2).encode())
    raise typer.Exit(0 if overheads.held else 1)
