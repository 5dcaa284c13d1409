"""The commands for a class: grade it, export its marks, and fill in those given by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FORMATS = ("csv", "nbgrader", "gradescope", "canvas", "classroom")
Book = Annotated[Path, typer.Argument(metavar="GRADEBOOK", help="A gradebook, or the folder that holds it.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (grade, export, marks):
        app.command()(command)
    app.command("class-report")(class_report)
    app.command()(feedback)


def grade(
    submissions: Annotated[
        list[Path], typer.Argument(metavar="SUBMISSIONS", help="Folders, or zip archives of Moodle or Canvas.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the gradebook; what is graded there is not graded again.")],
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Submissions to grade side by side.")] = 1,
    seed_file: Annotated[
        Path | None, typer.Option(help="A secret: inputs of the checks are drawn from it. By default drawn once.")
    ] = None,
    late: Annotated[
        Path | None, typer.Option(help="TOML: timezone, grace_minutes, penalty_per_day, most, and [P1] due = ...")
    ] = None,
    format_hint: Annotated[
        str | None, typer.Option(help="The layout: nbgrader, classroom[:SLUG], moodle, canvas or flat; else guessed.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time limit for one submission.")] = 60.0,
    again: Annotated[bool, typer.Option("--again", help="Grade again what has failed (not what lost points).")] = False,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Run submissions with your own rights: only for work that you trust.")
    ] = False,
    scheduler: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Grade on the Dask cluster of this scheduler, such as tcp://host:8786."),
    ] = "",
) -> None:
    """Grade a class, each submission in a sandbox. Stopped at any moment, it goes on at the next call.

    Without bubblewrap it refuses; `mlhood doctor` says how to get it. Rules for late submissions are a TOML file such
    as `penalty_per_day = 10` and below it `[P1]` and `due = 2026-10-12T23:59:00`. Layouts, seed, late days, marks by
    hand, exports and clusters are explained in mlhood/grading/INSTRUCTORS.md.

    The exit code is 0 if every submission was graded, 1 if some could not be, 2 if the work could not start, 130
    after Ctrl-C.

    Example: mlhood grade submitted --out graded --jobs 4 --seed-file seed.txt

    Example: mlhood grade P1-download.zip --out graded --late late.toml

    Example: mlhood grade submitted --out graded --scheduler tcp://10.0.0.1:8786
    """
    from rich.console import Console

    from mlhood.grading.batch.batch import TRUSTING
    from mlhood.grading.batch.grade_class import Wishes, grade_class
    from mlhood.grading.batch.progress import BatchWatch

    marker = {"marker": TRUSTING} if no_sandbox else {}
    wishes = Wishes(jobs, seed_file, late, format_hint, again, 60 * minutes, scheduler=scheduler, **marker)
    with BatchWatch(Console(stderr=True)) as watch:
        graded = grade_class(submissions, out, wishes, watch)
    typer.echo(graded.text())
    raise typer.Exit(0 if graded.whole else 1)


def export(
    gradebook: Book,
    to: Annotated[Path, typer.Option(help="The file to write; for gradescope and classroom a folder.")],
    format: Annotated[str, typer.Option(help="csv, nbgrader, gradescope, canvas or classroom.")] = "csv",
    fill: Annotated[Path | None, typer.Option(help="canvas: the gradebook that Canvas has exported.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="canvas: the column of a project, as 'P1=Homework 1 (901234)'.")
    ] = None,
    project: Annotated[list[str] | None, typer.Option(help="Only this project; can be given several times.")] = None,
    late: Annotated[Path | None, typer.Option(help="Other rules for late submissions than when it was graded.")] = None,
) -> None:
    """Write the marks of a class in the format of another program.

    Canvas: export its gradebook, fill the scores in with --fill, and import the result; --to may be the same file.

    Example: mlhood export graded --format csv --to marks.csv

    Example: mlhood export graded --format canvas --fill export.csv --to export.csv
    """
    from mlhood.grading.exporters.export import Target, exported

    target = Target(format, to, fill, tuple(column or ()), tuple(project or ()), late)
    typer.echo(exported(_book(gradebook), target))


def marks(
    gradebook: Book,
    write: Annotated[Path | None, typer.Option(help="Write the table of written questions into this file.")] = None,
    read: Annotated[Path | None, typer.Option(help="Take the points of this filled table over.")] = None,
) -> None:
    """Give points for written questions: write a table, fill in its column `points`, and read it again.

    Example: mlhood marks graded --write questions.csv

    Example: mlhood marks graded --read questions.csv
    """
    from mlhood.grading.exporters.export import hand_table_to
    from mlhood.grading.exporters.manual_marks import read_hand_table
    from mlhood.grading.gradebook.gradebook import Gradebook

    if (write is None) == (read is None):
        raise typer.BadParameter("say either --write FILE or --read FILE")
    if write is not None:
        typer.echo(hand_table_to(_book(gradebook), write))
    elif read is not None:
        with Gradebook(_book(gradebook), must_exist=True) as book:
            typer.echo(f"{read_hand_table(book, read)} marks taken over from {read}")


def class_report(
    gradebook: Book,
    to: Annotated[Path, typer.Option(help="The HTML file to write.")],
    given: Annotated[
        list[Path] | None, typer.Option(help="Where students got another edition than this one: a notebook of it.")
    ] = None,
) -> None:
    """Write a page about a class: points of each task, the hardest checks, and pairs of submissions that are alike.

    For each pair it shows the passages side by side, and it names copies of the package's own source.

    Example: mlhood class-report graded --to class.html
    """
    from mlhood.grading.exporters.export import class_report_to

    typer.echo(class_report_to(_book(gradebook), to, given or ()))


def feedback(
    gradebook: Book,
    to: Annotated[Path, typer.Option(help="Folder of the pages: STUDENT/PROJECT/PROJECT.html.")],
    project: Annotated[list[str] | None, typer.Option(help="Only this project; can be given several times.")] = None,
) -> None:
    """Write a page of feedback for every student: points, every check with its hint, and the student's own cells.

    Each page is one file that needs no network and runs no scripts. It shows the notebook as it was handed in.

    Example: mlhood feedback graded --to feedback
    """
    from mlhood.grading.reports.feedback_pages import feedback_to

    typer.echo(feedback_to(_book(gradebook), to, tuple(project or ())))


def _book(path: Path) -> Path:
    return path / "gradebook.sqlite" if path.is_dir() else path
