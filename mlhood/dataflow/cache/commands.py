"""The benchmark command of the cache simulator."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("cache")(bench_cache)


def bench_cache(
    caches: Annotated[
        str, typer.Option(help="L1, L2 and L3, such as 32KiB,1MiB,4MiB; or `machine`.")
    ] = "32KiB,1MiB,4MiB",
    fill: Annotated[float, typer.Option(help="Fraction of each cache that tiles may occupy.")] = 0.9,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulate a sliced convolution (256 filters of 3x3x32, output 75x75), and print the simulator's speed.

    Example: mlhood bench cache --caches machine
    """
    from mlhood.dataflow.cache import bench
    from mlhood.dataflow.slicing.caches import LEVELS, declared, of_machine

    sizes = of_machine(fill) if caches == "machine" else declared(caches, fill)
    runs = bench.runs(sizes)
    if as_json:
        echo(json.dumps({"caches": sizes.as_dict(), "runs": [run.as_dict() for run in runs]}, indent=2))
        return
    echo(f"caches: {sizes}")
    for run in runs:
        lines = ", ".join(
            f"{name} {simulated:,} ({simulated / predicted - 1:+.1%})"
            for name, simulated, predicted in zip(LEVELS, run.hits.into, run.predicted, strict=True)
        )
        echo(f"{run.slicing}: {run.rate / 1e6:.0f} million accesses/s; lines into {lines} against the prediction")
