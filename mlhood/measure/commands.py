"""The command `mlhood bench machine`: the machine's ceilings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("machine")(bench_machine)


def bench_machine(
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; 1 and then all by default.")] = None,
    sizes: Annotated[bool, typer.Option(help="Print the bandwidth of every size.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the roofline to this .svg or .png file.")] = None,
) -> None:
    """Measure this machine's ceilings: multiply-adds from registers, bytes per second from each cache.

    Example: mlhood bench machine --sizes
    """
    from mlhood.errors import OutputError
    from mlhood.measure.limits import all_threads, ceilings, describe

    last = None
    for count in (1, all_threads()) if threads is None else (threads,):
        last = ceilings(count)
        echo(f"{last}\n")
        if sizes:
            echo(f"{describe(last.sweep)}\n")
    if picture is not None and last is not None:
        try:
            last.roofline().plot().savefig(picture)
        except (OSError, ValueError) as error:
            raise OutputError("the figure cannot be written", where=picture, got=error) from error
        echo(f"wrote {picture}")
