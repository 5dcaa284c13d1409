"""The commands of the kernels: how fast they are beside the libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from mlhood.kernels.bench import Case
    from mlhood.kernels.layout import Layout

Threads = Annotated[int, typer.Option(min=1, help="Threads of every side.")]
Rounds = Annotated[int, typer.Option(min=21, help="Rounds, in each of which every side is timed once.")]
Hot = Annotated[bool, typer.Option(help="Call each side once before it is timed: its data is in the caches.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write rows and geometric means into this file, too.")]


def register(bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    bench.command("gemm")(bench_gemm)
    bench.command("conv")(bench_conv)


def bench_gemm(
    threads: Threads = 1,
    rounds: Rounds = 21,
    hot: Hot = False,
    dtype: Annotated[str, typer.Option(help="Of the matrices: float32, or int8 for u8 times s8 into s32.")] = "float32",
    as_json: Json = None,
) -> None:
    """Time our matrix product for n of 256 to 2048: beside NumPy's, or int8 beside float32 and ONNX Runtime's.

    Example: mlhood bench gemm --threads 2 --json gemm.json
    """
    _wait_asleep()
    from mlhood.kernels import bench

    _one_of("dtype", dtype, ["float32", "int8"])
    cache = _cache(hot)
    if dtype == "int8":
        _report({"bench": "gemm", "dtype": dtype}, lambda _: bench.int8_cases(threads, rounds, cache), threads, as_json)
        return
    _report(
        {"bench": "gemm", "dtype": dtype},
        lambda peak: bench.gemm_cases(threads, rounds, cache, peak=peak),
        threads,
        as_json,
    )


def bench_conv(
    threads: Threads = 1,
    rounds: Rounds = 21,
    hot: Hot = False,
    network: Annotated[
        str, typer.Option(help="Whose layers: resnet50, mobilenet_v2, squeezenet or vgg16.")
    ] = "resnet50",
    layout: Annotated[
        str, typer.Option(help="Of what ours and torch read and write: plain, or blocked as between compiled layers.")
    ] = "plain",
    as_json: Json = None,
) -> None:
    """Time our direct convolution beside torch, ONNX Runtime and im2col with BLAS, over a network's layers.

    Example: mlhood bench conv --threads 1 --json conv.json
    """
    _wait_asleep()
    from mlhood.kernels import bench
    from mlhood.kernels.layers import NETWORKS, distinct

    _one_of("network", network, list(NETWORKS))
    _one_of("layout", layout, ["plain", "blocked"])
    layers = distinct(NETWORKS[network]())
    if layout == "blocked":
        bench.check_blocks(layers)
    _report(
        {"bench": "conv", "network": network, "layout": layout},
        lambda peak: bench.conv_cases(threads, rounds, _cache(hot), layers, cast("Layout", layout), peak),
        threads,
        as_json,
    )


def _one_of(what: str, given: str, known: list[str]) -> None:
    from mlhood.errors import KernelError

    if given not in known:
        raise KernelError(f"this {what} is not known", expected=known, got=given)


def _wait_asleep() -> None:
    """Let the libraries' threads sleep when they wait: spinning, they burn the processors of whoever is timed next.

    The libraries read this when they are loaded, so it comes before them.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def _cache(hot: bool) -> str:
    return "hot" if hot else "interleaved"


def _report(
    what: dict[str, str], measure: Callable[[float], Iterable[Case]], threads: int, as_json: Path | None
) -> None:
    """Print each case as soon as it is measured, then the means; the machine's peak is measured first."""
    from mlhood.files.atomic import check_output, write_whole
    from mlhood.kernels import bench
    from mlhood.measure import machine, peak

    if as_json is not None:
        check_output(as_json)
    limit = peak(threads).value
    typer.echo(f"peak of {threads} threads: {limit / 1e9:.1f} GFLOP/s in float32")
    done = []
    for case in measure(limit):
        typer.echo(bench.line(case))
        done.append(case)
    means: dict[str, Any] = {"all": bench.summary(done)}
    if what["bench"] == "conv":
        for kernel in ("3x3", "1x1"):
            chosen = [case for case in done if f", {kernel}" in case.name]
            means |= {kernel: bench.summary(chosen)} if chosen else {}
    for name, mean in means.items():
        ratios = "  ".join(f"{peer} {value:.3f}" for peer, value in mean["ratios"].items())
        rate = f"{mean['gflops']:.1f} {bench.unit(done[0])}{bench.share(mean)}"
        typer.echo(f"geometric means, {name}: {rate}; ratio {ratios}")
    if as_json is not None:
        data = {**what, "threads": threads, "peak_flops": limit, "machine": machine().as_dict(),
                "rows": [case.row() for case in done], "summary": means}  # fmt: skip
        write_whole(as_json, json.dumps(data, indent=2).encode())
