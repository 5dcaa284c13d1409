"""The command of JAX: how fast it is beside NumPy, torch and ONNX Runtime."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer


def register(bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("jax")(bench_jax)


def bench_jax(
    threads: Annotated[int, typer.Option(min=1, help="Threads of every side.")] = 1,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds, in each of which every side is timed once.")] = 21,
    operators: Annotated[bool, typer.Option(help="Time each operator with and without JAX, too.")] = False,
    asynchronous: Annotated[
        bool, typer.Option(help="Let JAX hand each call to another thread, as it does by default.")
    ] = False,
    size: Annotated[int, typer.Option(min=32, help="Height and width of the image.")] = 224,
    processes: Annotated[
        int | None, typer.Option(min=2, help="Time training over so many processes instead: mlhood bench cluster.")
    ] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write the rows into this file, too.")] = None,
) -> None:
    """Time ResNet-18 in JAX beside NumPy, torch and ONNX Runtime, and say what compiling and transfers take.

    Where JAX finds a GPU, its times are told, too.

    Example: mlhood bench jax --threads 1 --operators --json jax.json
    """
    _start(threads, asynchronous)
    from mlhood.files.atomic import check_output, write_whole
    from mlhood.jaxlab import bench
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    if processes is not None:
        steps = _over_processes(processes, rounds)
        if as_json is not None:
            data = {"bench": "jax", "processes": processes, "machine": machine().as_dict(), "steps": steps}
            write_whole(as_json, json.dumps(data, indent=2).encode())
        return
    done = []
    for row in bench.operator_rows(threads, rounds, size) if operators else [bench.network_row(threads, rounds, size)]:
        typer.echo(row)
        done.append(row)
    # sessions of ONNX Runtime were told when they were made
    for note in (note for note in done[-1].result.unfixed if note.startswith("JAX")):
        typer.echo(f"not told by --threads: {note}")
    if as_json is not None:
        data = {"bench": "jax", "threads": threads, "asynchronous": asynchronous, "size": size,
                "gpu": str(bench.accelerator()), "machine": machine().as_dict(),
                "rows": [row.as_dict() for row in done]}  # fmt: skip
        write_whole(as_json, json.dumps(data, indent=2).encode())


def _over_processes(processes: int, rounds: int) -> list[dict[str, Any]]:
    """Time a step over one process and over several, print both, and return them as plain data."""
    from mlhood.jaxlab.cluster.bench import measure, table

    steps = measure((1, processes), rounds)
    typer.echo(table(steps).T.to_string())
    told = ("predicted_seconds", "predicted_bytes")
    return [asdict(step) | {name: getattr(step, name) for name in told} for step in steps]


def _start(threads: int, asynchronous: bool) -> None:
    """Tell the libraries their threads before they are loaded, and that those that wait shall sleep.

    A call that JAX hands to another thread waits for that one to wake up: longer than a small operator takes.
    """
    from mlhood.measure import environment

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    os.environ.update(environment(threads, {}))

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", asynchronous)
