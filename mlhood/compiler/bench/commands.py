"""The command `mlhood bench model`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("model")(bench_model)


def bench_model(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="lenet, resnet18, resnet50, mobilenet_v2, vit_block, gpt_block; all by default.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every alternative.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Number of examples in a run.")] = 1,
    int8: Annotated[bool, typer.Option("--int8", help="Also time models quantised to int8.")] = False,
    target: Annotated[
        list[str] | None, typer.Option(help="Our targets, the ratios' reference first; may be repeated.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds; each times every alternative once.")] = 21,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
) -> None:
    """Time whole models on our targets, torch, ONNX Runtime, XLA, and OpenVINO if it is installed.

    A ratio is the time of an alternative divided by that of our first target: above 1, ours is faster.

    Of the peak is the share of the float32 operations per second that these threads can reach; of bandwidth, for our
    targets, the bytes that their kernels read and write, per second, as a share of what the threads copy from the
    slowest memory that was measured: a model that stays in faster caches can exceed it. The peak resident memory is
    that of a new process that loads the file and runs it, with our kernels in the cache, beside ONNX Runtime's.

    Example: mlhood bench model resnet18 mobilenet_v2 --threads 1 --json models.json
    """
    _configure(threads)
    from mlhood.compiler.backends.targets import check_target
    from mlhood.compiler.bench.model import NETWORKS, measure
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.measure import ceilings, machine

    if as_json is not None:
        check_output(as_json)
    for each in target or ():
        check_target(each)
    limits = ceilings(threads)
    limit, levels = limits.peak.value, limits.bandwidths
    slowest = min(levels, key=lambda level: levels[level], default=None)
    echo(f"peak of {threads} threads: {limit / 1e9:.1f} GFLOP/s in float32")
    if slowest is not None:
        echo(f"bandwidth of {threads} threads: {levels[slowest] / 1e9:.1f} GB/s ({slowest})")
    rows = []
    for row in measure(
        names or list(NETWORKS),
        threads=threads,
        batch=batch,
        rounds=rounds,
        peak=limit,
        bandwidth=None if slowest is None else levels[slowest],
        int8=int8,
        targets=target or (),
    ):
        echo(row)
        rows.append(row)
    # ONNX Runtime's threads are fixed by its session options
    for note in (note for note in rows[-1].result.unfixed if note.startswith("JAX")):
        echo(f"not fixed by --threads: {note}")
    if as_json is not None:
        data = {"bench": "model", "threads": threads, "batch": batch, "peak_flops": limit}
        data |= {"bandwidth": None if slowest is None else {"level": slowest, "bytes_per_second": levels[slowest]}}
        data |= {"machine": machine().as_dict(), "rows": [row.as_dict() for row in rows]}
        write_atomic(as_json, json.dumps(data, indent=2).encode())


def _configure(threads: int) -> None:
    """Fix the libraries' threads before they are imported, and let waiting threads sleep instead of spin.

    JAX's asynchronous dispatch would wake up another thread for each call.
    """
    from mlhood.measure import environment

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    os.environ.update(environment(threads, {}))

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
