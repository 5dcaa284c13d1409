"""The commands for the course's own repository: `mlhood sync`, `preview`, `release` and `bench grading`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlhood.errors import GradingError
from mlhood.files.terminal import echo
from mlhood.grading.commands import find, relative
from mlhood.grading.variants.parameter import variant_option


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `app`, and one to `bench`."""
    for command in (sync, preview, release):
        app.command()(command)
    bench.command("grading")(bench_grading)


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
            echo(f"page: {relative(write_atomic(out / f'{path.stem}.html', page.encode()))}")
    echo("\n".join(map(str, found)) or "nothing looks wrong")
    raise typer.Exit(1 if found else 0)


def release(
    out: Annotated[Path, typer.Option(help="Folder of the student version: new or empty.")],
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty; other files in it are not changed.")
    ] = False,
    gradescope: Annotated[
        bool, typer.Option("--gradescope", help="Write the autograder for Gradescope, too: DIR-gradescope.zip.")
    ] = False,
    variant: Annotated[
        str | None, variant_option("Draw the tasks' parameters from this name, known to you alone.")
    ] = None,
    seed_file: Annotated[
        Path | None, typer.Option(help="The seed of the course, which signs the variant; by default DIR-seed.txt.")
    ] = None,
    sources: Annotated[
        Path | None,
        typer.Option(help="The folder of `mlhood run --variant NAME`: outputs of given cells come from it."),
    ] = None,
) -> None:
    """Write the student version, without the solutions.

    A notebook that would be replaced is kept beside the new one. The version has a
    workflow by which GitHub Classroom shows points.

    With --variant it asks for other things than the course whose solutions are public.

    Example: mlhood release --out ../student

    Example: mlhood release --out ../student --gradescope

    Example: mlhood release --out ../student --variant autumn-4f9c
    """
    from mlhood.grading.notebooks.notebook import course_folder
    from mlhood.grading.student.release import new_seed_file
    from mlhood.grading.student.release import release as write_version
    from mlhood.grading.student.variant_version import Variant

    root = course_folder(Path.cwd())
    made_of = None
    if variant is not None:
        made_of = Variant(variant, seed_file or new_seed_file(root, out), sources)
    elif seed_file or sources:
        raise GradingError("--seed-file and --sources are for a variant", where="mlhood release", todo="add --variant")
    echo(write_version(root, out, force=force, gradescope=gradescope, made_of=made_of).text())


def bench_grading(rounds: Annotated[int, typer.Option(min=1, help="Gradings with each kernel.")] = 9) -> None:
    """Time what grading takes besides cells and checks: with a warm sandbox, a cold one, and none.

    Example: mlhood bench grading
    """
    from mlhood.grading.overhead import format_seconds, measure

    echo(format_seconds(measure(rounds)))
