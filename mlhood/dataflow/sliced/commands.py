"""The bench of the sliced convolution."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer


def register(bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("sliced")(bench_sliced)


def bench_sliced(
    threads: Annotated[int, typer.Option(min=1, help="Threads of every side.")] = 1,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds, in each of which every side is timed once.")] = 21,
    hot: Annotated[bool, typer.Option(help="Call each side once before it is timed.")] = False,
    network: Annotated[
        str, typer.Option(help="Whose layers: resnet50, mobilenet_v2, squeezenet or vgg16.")
    ] = "resnet50",
    search: Annotated[bool, typer.Option(help="Time all slicings of a grid, too: minutes.")] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write rows and means into this file, too.")] = None,
) -> None:
    """Time the sliced convolution, with the slicing that the analysis chooses, beside im2col and torch.

    Layers whose channels fall into groups are left out.

    Example: mlhood bench sliced --threads 1 --search --json sliced.json
    """
    # the libraries read this when they are loaded: spinning threads slow whoever is timed next
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from mlhood.dataflow.sliced import bench
    from mlhood.files.atomic import check_output, write_whole
    from mlhood.kernels.bench import line, summary
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    layers, rows, cases = _layers(network), [], []
    for case, slicing in bench.sliced_cases(threads, rounds, "hot" if hot else "interleaved", layers):
        typer.echo(f"{line(case)}; {slicing}")
        cases.append(case)
        rows.append({**case.row(), "slicing": str(slicing)})
    means = summary(cases)
    ratios = "  ".join(f"{peer} {value:.3f}" for peer, value in means["ratios"].items())
    typer.echo(f"geometric means: {means['gflops']:.1f} GFLOP/s; ratio {ratios}")
    found = _search(layers, threads, rounds) if search else []
    if as_json is not None:
        data = {"bench": "sliced", "threads": threads, "machine": machine().as_dict(), "rows": rows,
                "summary": means, "search": found}  # fmt: skip
        write_whole(as_json, json.dumps(data, indent=2).encode())


def _layers(network: str) -> list[Any]:
    from mlhood.errors import KernelError
    from mlhood.kernels.layers import NETWORKS, distinct

    if network not in NETWORKS:
        raise KernelError("this network's layers are not known", expected=list(NETWORKS), got=network)
    return [layer for layer in distinct(NETWORKS[network]()) if layer.groups == 1]


def _search(layers: list[Any], threads: int, rounds: int) -> list[dict[str, Any]]:
    """Print how far the analysis is from the fastest slicing of each layer."""
    from mlhood.dataflow.sliced import bench
    from mlhood.kernels.bench import geometric_mean

    rows = []
    for layer in layers:
        found = bench.search(layer, threads, rounds)
        rows.append({"case": layer.name, **found.row()})
        ratio = rows[-1]["ratio"]
        typer.echo(f"{layer.name}: the analysis' {found.chosen} takes {ratio['value']:.3f} [{ratio['low']:.3f}, "
                   f"{ratio['high']:.3f}] of the time of {found.best}, the fastest other of {found.timed}")  # fmt: skip
    mean = geometric_mean(row["ratio"]["value"] for row in rows)
    typer.echo(f"geometric mean: the analysis' choices take {mean:.3f} of the fastest others' time")
    return rows
