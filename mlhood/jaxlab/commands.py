"""The commands `mlhood bench jax`, JAX against NumPy, torch and ONNX Runtime, and `mlhood bench cluster`."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    bench.command("jax")(bench_jax)
    bench.command("cluster")(bench_cluster)


def bench_jax(
    threads: Annotated[int, typer.Option(min=1, help="Threads of every library.")] = 1,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds, in each of which every alternative is timed once.")] = 21,
    operators: Annotated[bool, typer.Option(help="Also time each operator with and without JAX.")] = False,
    asynchronous: Annotated[
        bool, typer.Option(help="Keep JAX's asynchronous dispatch, which runs calls in another thread.")
    ] = False,
    size: Annotated[int, typer.Option(min=32, help="Height and width of the image.")] = 224,
    processes: Annotated[
        int | None, typer.Option(min=2, help="Time training on this many processes instead, like mlhood bench cluster.")
    ] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
) -> None:
    """Time ResNet-18 in JAX against NumPy, torch and ONNX Runtime, with compilation and transfer times.

    If JAX finds a GPU, it is timed, too.

    Example: mlhood bench jax --threads 1 --operators --json jax.json
    """
    _configure(threads, asynchronous)
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.jaxlab import bench
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    if processes is not None:
        data = {"processes": processes, "steps": _bench_processes(processes, rounds)}
    else:
        rows = bench.operator_rows(threads, rounds, size) if operators else [bench.network_row(threads, rounds, size)]
        measured = []
        for row in rows:
            echo(row)
            measured.append(row)
        # ONNX Runtime's threads are fixed by its session options
        for note in (note for note in measured[-1].result.unfixed if note.startswith("JAX")):
            echo(f"not fixed by --threads: {note}")
        data = {"threads": threads, "asynchronous": asynchronous, "size": size, "gpu": str(bench.gpu())}
        data["rows"] = [row.as_dict() for row in measured]
    if as_json is not None:
        data = {"bench": "jax", "machine": machine().as_dict(), **data}
        write_atomic(as_json, json.dumps(data, indent=2).encode())


def _bench_processes(processes: int, rounds: int) -> list[dict[str, Any]]:
    """Time a training step on one process and on several, print both, and return them as plain data."""
    from mlhood.jaxlab.cluster.bench import measure, table

    steps = measure((1, processes), rounds)
    echo(table(steps).T.to_string())
    properties = ("predicted_seconds", "predicted_bytes")
    return [asdict(step) | {name: getattr(step, name) for name in properties} for step in steps]


def _configure(threads: int, asynchronous: bool) -> None:
    """Fix the libraries' threads before they are imported, and let waiting threads sleep instead of spin.

    Asynchronous dispatch wakes up another thread for each call, which takes longer than a small operator.
    """
    from mlhood.measure import environment

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    os.environ.update(environment(threads, {}))

    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", asynchronous)


def bench_cluster(
    processes: Annotated[
        list[int] | None, typer.Option("-n", "--processes", min=1, help="Numbers of processes; 1 and 2 by default.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=21, help="Steps of each kind.")] = 21,
) -> None:
    """Time a step of training on several processes of this machine, and count the bytes that each sends.

    The processes share the cores: this measures the cost of an all-reduce, not the speed of a cluster.

    Example: mlhood bench cluster -n 1 -n 2 -n 4
    """
    from mlhood.jaxlab.cluster.bench import measure, table

    echo(table(measure(processes or (1, 2), rounds)).T.to_string())
