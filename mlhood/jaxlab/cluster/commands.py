"""The commands `mlhood cluster`, which runs a program as several processes, and `mlhood bench cluster`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `app` and `bench`."""
    # options after the program's name are passed to the program, with or without -- before it
    app.command("cluster", context_settings={"allow_interspersed_args": False})(cluster)
    bench.command("cluster")(bench_cluster)


def cluster(
    command: Annotated[list[str], typer.Argument(help="The program, after --; python means mlhood's interpreter.")],
    processes: Annotated[int, typer.Option("-n", "--processes", min=1, help="Number of processes.")] = 2,
    devices: Annotated[
        int, typer.Option("--devices-per-process", min=1, help="CPU devices of JAX in each process.")
    ] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads in each process; by default an equal share of the cores.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which all processes are terminated; no limit by default.")
    ] = None,
) -> None:
    """Run a program as several processes of this machine that find each other by mlhood.jaxlab.cluster.initialize().

    Each line of output is prefixed with the rank of its process. When a process fails, the others are terminated, and
    the exit code is 2.

    Example: mlhood cluster -n 4 -- python script.py --steps 10
    """
    from mlhood.jaxlab.cluster.launch import launch

    launch(command, processes, devices=devices, threads=threads, timeout=timeout, say=echo)


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
