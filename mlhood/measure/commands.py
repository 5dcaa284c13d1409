"""The commands of measuring: the machine's ceilings, and whether comparisons hold on a busy machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    bench.command("measure")(bench_measure)
    bench.command("machine")(bench_machine)


def bench_measure(
    burners: Annotated[int, typer.Option(min=0, help="Other processes that burn a core each meanwhile.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="How often all pairs are compared.")] = 10,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds of each comparison.")] = 21,
    store: Annotated[Path | None, typer.Option("--json", help="Add the comparisons to this file, a line each.")] = None,
) -> None:
    """Compare alternatives whose true ratio is known while the machine is busy.

    The exit code is 1 if a pair's interval holds the truth in fewer than 9 of 10 runs, 0 otherwise.

    Example: mlhood bench measure --burners 1
    """
    from mlhood.measure import bench, save

    found = bench.coverage(burners, runs, rounds, _progress)
    typer.echo(bench.table(found))
    if store is not None:
        for one in found:
            for number, result in enumerate(one.results):
                save(store, result, bench="measure", pair=one.name, burners=burners, number=number)
    raise typer.Exit(0 if all(one.enough for one in found) else 1)


def bench_machine(
    threads: Annotated[int | None, typer.Option(min=1, help="Threads at once; one and then all if left out.")] = None,
    sizes: Annotated[bool, typer.Option(help="Print the bandwidth of every size.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the roofline into this .svg or .png.")] = None,
) -> None:
    """Measure what this machine can do at most: multiply-adds from registers, bytes per second from each cache.

    Example: mlhood bench machine --sizes
    """
    from mlhood.measure.limits import all_threads, ceilings, describe

    last = None
    for count in (1, all_threads()) if threads is None else (threads,):
        last = ceilings(count)
        typer.echo(f"{last}\n")
        if sizes:
            typer.echo(f"{describe(last.sweep)}\n")
    if picture is not None and last is not None:
        _draw(last.roofline().plot(), picture)
        typer.echo(f"drawn: {picture}")


def _draw(figure: Figure, path: Path) -> None:
    from mlhood.errors import OutputError

    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise OutputError("the picture cannot be written", where=path, got=error) from error


def _progress(line: str) -> None:
    typer.echo(line, err=True)
