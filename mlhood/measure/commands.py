"""The commands `mlhood bench measure` and `mlhood bench machine`: the method itself, and the machine's ceilings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    bench.command("measure")(bench_measure)
    bench.command("machine")(bench_machine)


def bench_measure(
    burners: Annotated[int, typer.Option(min=0, help="Other processes that burn a core each meanwhile.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="Comparisons of each pair.")] = 10,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds of each comparison.")] = 21,
    store: Annotated[Path | None, typer.Option("--json", help="Append the comparisons to this file, as lines.")] = None,
) -> None:
    """Compare alternatives with a known ratio while the machine is busy.

    The exit code is 1 if a pair's interval contains the true ratio in fewer than 9 of 10 runs, 0 otherwise.

    Example: mlhood bench measure --burners 1
    """
    from mlhood.measure import bench, save

    coverages = bench.coverage(burners, runs, rounds, lambda line: echo(line, err=True))
    echo(bench.table(coverages))
    if store is not None:
        for entry in coverages:
            for number, result in enumerate(entry.results):
                save(store, result, bench="measure", pair=entry.name, burners=burners, number=number)
    raise typer.Exit(0 if all(entry.sufficient for entry in coverages) else 1)


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
