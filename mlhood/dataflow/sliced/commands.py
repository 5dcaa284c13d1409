"""The benchmark command of the sliced convolution."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("sliced")(bench_sliced)


def bench_sliced(
    threads: Annotated[int, typer.Option(min=1, help="Threads of every alternative.")] = 1,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds, each of which times every alternative once.")] = 21,
    hot: Annotated[bool, typer.Option(help="Call each alternative once before it is timed.")] = False,
    network: Annotated[
        str, typer.Option(help="Whose layers: resnet50, mobilenet_v2, squeezenet or vgg16.")
    ] = "resnet50",
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write rows and means to this file.")] = None,
) -> None:
    """Time the sliced convolution, with the slicing that the analysis chooses, against im2col and torch.

    Grouped convolutions are left out.

    Example: mlhood bench sliced --threads 1 --json sliced.json
    """
    # the libraries read this when they are loaded: spinning threads would slow down the next alternative
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from mlhood.dataflow.sliced import bench
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.kernels.bench import line, summary
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    layers, rows, cases = _layers(network), [], []
    for case, slicing in bench.sliced_cases(threads, rounds, "hot" if hot else "interleaved", layers):
        echo(f"{line(case)}; {slicing}")
        cases.append(case)
        rows.append({**case.row(), "slicing": str(slicing)})
    means = summary(cases)
    ratios = "  ".join(f"{baseline} {value:.3f}" for baseline, value in means["ratios"].items())
    echo(f"geometric means: {means['gflops']:.1f} GFLOP/s; ratio {ratios}")
    if as_json is not None:
        conditions = {"bench": "sliced", "threads": threads, "machine": machine().as_dict()}
        data = {**conditions, "rows": rows, "summary": means}
        write_atomic(as_json, json.dumps(data, indent=2).encode())


def _layers(network: str) -> list[Any]:
    from mlhood.errors import KernelError, nearest
    from mlhood.kernels.layers import NETWORKS, distinct

    if network not in NETWORKS:
        raise KernelError("unknown network", expected=", ".join(NETWORKS), got=network, todo=nearest(network, NETWORKS))
    return [layer for layer in distinct(NETWORKS[network]()) if layer.groups == 1]
