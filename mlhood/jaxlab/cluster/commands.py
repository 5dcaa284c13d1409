"""The command `mlhood cluster`, which runs a program as several processes."""

from __future__ import annotations

from typing import Annotated

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `app`."""
    # options after the program's name are passed to the program, with or without -- before it
    app.command("cluster", context_settings={"allow_interspersed_args": False})(cluster)


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
