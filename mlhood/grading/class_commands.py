"""The commands for a class: grade it, export its marks, give points by hand, and write pages about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlhood.files.terminal import echo
from mlhood.grading.variants.parameter import variant_option

Book = Annotated[Path, typer.Argument(metavar="GRADEBOOK", help="A gradebook, or the folder that holds it.")]


def register(app: typer.Typer, bench: typer.Typer) -> None:
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
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Submissions to grade at once.")] = 1,
    seed_file: Annotated[
        Path | None, typer.Option(help="A secret: inputs of the checks are drawn from it. By default drawn once.")
    ] = None,
    late: Annotated[
        Path | None, typer.Option(help="TOML: timezone, grace_minutes, penalty_per_day, most, and [P1] due = ...")
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(help="CSV: student, name, email, group. Who has submitted nothing is named everywhere."),
    ] = None,
    variant: Annotated[
        str | None, variant_option("The variant that the class was given: what has no version is marked as it.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(help="nbgrader, classroom[:SLUG], moodle, canvas or flat; needed where no name indicates it."),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time limit for one submission.")] = 60.0,
    again: Annotated[bool, typer.Option("--again", help="Grade again what has failed (not what lost points).")] = False,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Run submissions with your own rights: only for work that you trust.")
    ] = False,
) -> None:
    """Grade a class, each submission in a sandbox. Interrupted at any moment, it continues at the next call.

    It needs bubblewrap; `mlhood doctor` says how to install it. The policy for late submissions is a TOML file such as
    `penalty_per_day = 10` followed by `[P1]` and `due = 2026-10-12T23:59:00`. Layouts, seed, late submissions, points
    given by hand, and exports are explained in mlhood/grading/INSTRUCTORS.md.

    The exit code is 0 if every submission was graded, 1 if some could not be, 2 if the work could not start, 130
    after Ctrl-C.

    Example: mlhood grade submitted --out graded --jobs 4 --seed-file seed.txt

    Example: mlhood grade P1-download.zip --out graded --late late.toml
    """
    echo("mlhood grade: loading", err=True)  # at once: what follows takes a while
    from mlhood.grading.batch.grade_class import GradeOptions, grade_class
    from mlhood.grading.progress import CommandProgress

    grading = (again, 60 * minutes, not no_sandbox, variant or "")
    options = GradeOptions(jobs, seed_file, late, roster, layout, *grading)
    with CommandProgress() as progress:
        result = grade_class(submissions, out, options, progress)
    echo(result.text())
    raise typer.Exit(0 if result.complete else 1)


def export(
    gradebook: Book,
    to: Annotated[Path, typer.Option(help="The file to write; for gradescope and classroom a folder.")],
    format: Annotated[str, typer.Option(help="csv, nbgrader, gradescope, canvas or classroom.")] = "csv",
    fill: Annotated[Path | None, typer.Option(help="canvas: the gradebook that Canvas has exported.")] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="canvas: the column of a project, as 'P1=Homework 1 (901234)'.")
    ] = None,
    project: Annotated[list[str] | None, typer.Option(help="Only this project; can be given several times.")] = None,
    late: Annotated[
        Path | None, typer.Option(help="Another policy for late submissions than the one stored when it was graded.")
    ] = None,
) -> None:
    """Write the marks of a class in the format of another program.

    csv: a table for spreadsheets and Moodle (Grades > Import > CSV file). Canvas: export its gradebook, fill the scores
    in with --fill, and import the result (Grades > Import); --to may be the same file. nbgrader, Gradescope and GitHub
    Classroom import no marks: their formats are for tools that read what these programs write.

    Example: mlhood export graded --format csv --to marks.csv

    Example: mlhood export graded --format canvas --fill export.csv --to export.csv
    """
    from mlhood.grading.exporters.export import export as export_marks

    echo(
        export_marks(
            _path(gradebook), to, format, fill_in=fill, columns=column or (), projects=project or (), late=late
        )
    )


def marks(
    gradebook: Book,
    write: Annotated[Path | None, typer.Option(help="Write the table of written answers and undecided tasks.")] = None,
    read: Annotated[Path | None, typer.Option(help="Store the points of this filled table.")] = None,
) -> None:
    """Give points for written questions and undecided tasks, in a table that is written, filled in and read back.

    Example: mlhood marks graded --write to-mark.csv

    Example: mlhood marks graded --read to-mark.csv
    """
    if (write is None) == (read is None):
        raise typer.BadParameter("give one of --write FILE and --read FILE")
    from mlhood.grading.gradebook.gradebook import Gradebook
    from mlhood.grading.marking import read_manual_marks, write_manual_marks

    if write is not None:
        echo(write_manual_marks(_path(gradebook), write))
    elif read is not None:
        with Gradebook(_path(gradebook), must_exist=True) as book:
            echo(f"{read_manual_marks(book, read)} marks read from {read}")


def class_report(
    gradebook: Book,
    to: Annotated[Path, typer.Option(help="The HTML file to write.")],
    given: Annotated[
        list[Path] | None, typer.Option(help="If students got another version than this one: a notebook of it.")
    ] = None,
) -> None:
    """Write a page about a class: points of each task, the hardest checks, and pairs of similar submissions.

    It shows the similar passages of each pair side by side, and lists copies of the package's own source.

    Example: mlhood class-report graded --to class.html
    """
    echo("mlhood class-report: loading", err=True)
    from mlhood.grading.progress import CommandProgress
    from mlhood.grading.reports.class_report import write_class_report

    with CommandProgress() as progress:
        message = write_class_report(_path(gradebook), to, given or (), progress)
    echo(message)


def feedback(
    gradebook: Book,
    to: Annotated[Path, typer.Option(help="Folder of the pages: STUDENT/PROJECT/PROJECT.html.")],
    project: Annotated[list[str] | None, typer.Option(help="Only this project; can be given several times.")] = None,
) -> None:
    """Write a page of feedback for every student: points, every check with its hint, and the student's own cells.

    Each page is one file that needs no network and runs no scripts. It shows the notebook as it was submitted.

    Example: mlhood feedback graded --to feedback
    """
    echo("mlhood feedback: loading", err=True)
    from mlhood.grading.progress import CommandProgress
    from mlhood.grading.reports.feedback import write_feedback

    with CommandProgress() as progress:
        message = write_feedback(_path(gradebook), to, tuple(project or ()), progress)
    echo(message)


def _path(gradebook: Path) -> Path:
    from mlhood.grading.gradebook.gradebook import GRADEBOOK_FILE

    return gradebook / GRADEBOOK_FILE if gradebook.is_dir() else gradebook
