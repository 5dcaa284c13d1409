"""The commands of the cluster: a program as several processes of this machine, and how long its steps take."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `app` and `bench`."""
    # options that stand after the program's name are the program's, with -- before it or without
    app.command("cluster", context_settings={"allow_interspersed_args": False})(cluster)
    bench.command("cluster")(bench_cluster)


def cluster(
    command: Annotated[list[str], typer.Argument(help="What to run, after --; python is the one that runs mlhood.")],
    processes: Annotated[int, typer.Option("-n", "--processes", min=1, help="How many processes.")] = 2,
    devices: Annotated[
        int, typer.Option("--devices-per-process", min=1, help="CPU devices that JAX has in each process.")
    ] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads in each process; the cores are shared out if left out.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds after which all are ended; no limit if left out.")
    ] = None,
) -> None:
    """Run a program as several processes of this machine that find each other by mlhood.jaxlab.cluster.initialize().

    Lines come with the number of their process. When one process fails the others are ended, and the exit code is 2.

    Example: mlhood cluster -n 4 -- python script.py --steps 10
    """
    from mlhood.jaxlab.cluster.launch import launch

    launch(command, processes, devices=devices, threads=threads, timeout=timeout, say=typer.echo)


def bench_cluster(
    processes: Annotated[list[int] | None, typer.Option("-n", "--processes", min=1, help="How many; 1 and 2.")] = None,
    rounds: Annotated[int, typer.Option(min=21, help="Steps of each kind.")] = 21,
) -> None:
    """Time a step of training over several processes of this machine, and count the bytes that each sends.

    They share the cores, so this tells what an all-reduce costs, not how fast a cluster is.

    Example: mlhood bench cluster -n 1 -n 2 -n 4
    """
    from mlhood.jaxlab.cluster.bench import measure, table

    typer.echo(table(measure(processes or (1, 2), rounds)).T.to_string())
