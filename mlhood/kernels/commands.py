"""The commands of the kernels: how fast they are beside the libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mlhood.kernels.bench import Case

Threads = Annotated[int, typer.Option(min=1, help="Threads of every side.")]
Rounds = Annotated[int, typer.Option(min=21, help="Rounds, in each of which every side is timed once.")]
Hot = Annotated[bool, typer.Option(help="Call each side once before it is timed: its data is in the caches.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write rows and geometric means into this file, too.")]


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    bench.command("gemm")(bench_gemm)
    bench.command("conv")(bench_conv)


def bench_gemm(threads: Threads = 1, rounds: Rounds = 21, hot: Hot = False, as_json: Json = None) -> None:
    """Time our matrix product beside NumPy's, for n of 256 to 2048.

    Example: mlhood bench gemm --threads 2 --json gemm.json
    """
    _wait_asleep()
    from mlhood.kernels import bench

    _report("gemm", bench.gemm_cases(threads, rounds, _cache(hot)), threads, as_json)


def bench_conv(
    threads: Threads = 1,
    rounds: Rounds = 21,
    hot: Hot = False,
    network: Annotated[
        str, typer.Option(help="Whose layers: resnet50, mobilenet_v2, squeezenet or vgg16.")
    ] = "resnet50",
    as_json: Json = None,
) -> None:
    """Time our direct convolution beside torch, ONNX Runtime and im2col with BLAS, over a network's layers.

    Example: mlhood bench conv --threads 1 --json conv.json
    """
    _wait_asleep()
    from mlhood.errors import KernelError
    from mlhood.kernels import bench
    from mlhood.kernels.layers import NETWORKS, distinct

    if network not in NETWORKS:
        raise KernelError("this network's layers are not known", expected=list(NETWORKS), got=network)
    _report("conv", bench.conv_cases(threads, rounds, _cache(hot), distinct(NETWORKS[network]())), threads, as_json)


def _wait_asleep() -> None:
    """Let the libraries' threads sleep when they wait: spinning, they burn the processors of whoever is timed next.

    The libraries read this when they are loaded, so it comes before them.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def _cache(hot: bool) -> str:
    return "hot" if hot else "interleaved"


def _report(what: str, cases: Iterable[Case], threads: int, as_json: Path | None) -> None:
    """Print each case as soon as it is measured, then the means, beside the machine's peak."""
    from mlhood.exchange.output import check_output, write_whole
    from mlhood.kernels import bench
    from mlhood.measure import machine, peak

    if as_json is not None:
        check_output(as_json)
    done = []
    for case in cases:
        typer.echo(bench.line(case))
        done.append(case)
    limit = peak(threads)
    means: dict[str, Any] = {"all": bench.summary(done)}
    if what == "conv":
        means["3x3"] = bench.summary([case for case in done if ", 3x3" in case.name])
        means["1x1"] = bench.summary([case for case in done if ", 1x1" in case.name])
    for name, mean in means.items():
        ratios = "  ".join(f"{peer} {value:.3f}" for peer, value in mean["ratios"].items())
        typer.echo(f"geometric means, {name}: {mean['gflops']:.1f} GFLOP/s; ratio {ratios}")
    typer.echo(f"peak of {threads} threads: {limit.value / 1e9:.1f} GFLOP/s")
    if as_json is not None:
        data = {"bench": what, "threads": threads, "peak_flops": limit.value, "machine": machine().as_dict(),
                "rows": [case.row() for case in done], "summary": means}  # fmt: skip
        write_whole(as_json, json.dumps(data, indent=2).encode())
