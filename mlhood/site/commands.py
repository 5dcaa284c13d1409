"""The command that builds the site; `cli` adds it to its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(site)


def site(
    out: Annotated[Path, typer.Option(help="Folder of the site: new, empty, or an earlier site, which is replaced.")],
) -> None:
    r"""Build the site of the course: pages of notebooks, how-tos and the package, with search, for any web server.

    Run it in the folder of the course. Notebooks appear with the outputs that they have; nothing is executed, and
    nothing is loaded from the network, neither now nor by the pages. It needs: pip install -e ".\[site]"

    The exit code is 2 if a link leads nowhere or the site could not be written; an earlier site is then unchanged.

    Example: mlhood site --out site
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from mlhood.site.build import build_site

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("preparing", total=None)

        def show(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total)

        pages = build_site(Path.cwd(), out, show)
    echo(f"site: {out / 'index.html'} ({pages} pages)")
