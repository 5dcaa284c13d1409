"""The command `mlhood bench jax`: JAX against NumPy, torch and ONNX Runtime."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from mlhood.files.terminal import echo
from mlhood.kernels.commands import Json, Rounds, Threads, let_idle_threads_sleep


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("jax")(bench_jax)


def bench_jax(
    threads: Threads = 1,
    rounds: Rounds = 21,
    operators: Annotated[bool, typer.Option(help="Also time each operator with and without JAX.")] = False,
    size: Annotated[int, typer.Option(min=32, help="Height and width of the image.")] = 224,
    as_json: Json = None,
) -> None:
    """Time ResNet-18 in JAX against NumPy, torch and ONNX Runtime, with compilation and transfer times.

    If JAX finds a GPU, it is timed, too.

    Example: mlhood bench jax --threads 1 --operators --json jax.json
    """
    _configure(threads)
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.jaxlab import bench
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    rows = bench.operator_rows(threads, rounds, size) if operators else [bench.network_row(threads, rounds, size)]
    measured = []
    for row in rows:
        echo(row)
        measured.append(row)
    # ONNX Runtime's threads are fixed by its session options
    for note in (note for note in measured[-1].result.unfixed if note.startswith("JAX")):
        echo(f"not fixed by --threads: {note}")
    if as_json is not None:
        data = {
            "bench": "jax",
            "machine": machine().as_dict(),
            "threads": threads,
            "size": size,
            "gpu": str(bench.gpu()),
        }
        data["rows"] = [row.as_dict() for row in measured]
        write_atomic(as_json, json.dumps(data, indent=2).encode())


def _configure(threads: int) -> None:
    """Fix the libraries' threads before they are imported, and let idle ones sleep.

    Asynchronous dispatch wakes up another thread for each call, which takes longer than a small operator.
    """
    from mlhood.measure import environment

    let_idle_threads_sleep()
    os.environ.update(environment(threads, {}))

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
