"""The commands `mlhood bench gemm` and `mlhood bench conv`: the kernels compared with the libraries.

`mlhood bench sliced` has the same options and the same report, `mlhood bench jax` some of the options.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from mlhood.kernels.bench import ConvolutionCase
    from mlhood.kernels.geometry import Layout

Threads = Annotated[int, typer.Option(min=1, help="Threads for every alternative.")]
Rounds = Annotated[int, typer.Option(min=21, help="Rounds; each times every alternative once.")]
Hot = Annotated[bool, typer.Option(help="Call each alternative once before it is timed: its data are in the caches.")]
Network = Annotated[str, typer.Option(help="Network with the layers: resnet50, mobilenet_v2, squeezenet or vgg16.")]
Json = Annotated[Path | None, typer.Option("--json", help="Also write rows and geometric means to this file.")]


def register(app: typer.Typer, bench: typer.Typer) -> None:
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
    """Time our matrix product for n from 256 to 2048 and NumPy's, or int8, float32 and ONNX Runtime's.

    Example: mlhood bench gemm --threads 2 --json gemm.json
    """
    let_idle_threads_sleep()
    from mlhood.kernels import bench

    check_choice("dtype", dtype, ["float32", "int8"])
    cache = "hot" if hot else "interleaved"

    def measure(peak: float) -> Iterable[ConvolutionCase]:
        if dtype == "int8":
            return bench.int8_cases(threads, rounds, cache)
        return bench.gemm_cases(threads, rounds, cache, peak=peak)

    report({"bench": "gemm", "dtype": dtype}, measure, threads, as_json)


def bench_conv(
    threads: Threads = 1,
    rounds: Rounds = 21,
    hot: Hot = False,
    network: Network = "resnet50",
    layout: Annotated[
        str, typer.Option(help="Layout that ours and torch use: plain, or blocked as between compiled layers.")
    ] = "plain",
    as_json: Json = None,
) -> None:
    """Time our direct convolution, torch, ONNX Runtime and im2col with BLAS over a network's layers.

    Example: mlhood bench conv --threads 1 --json conv.json
    """
    let_idle_threads_sleep()
    from mlhood.errors import KernelError
    from mlhood.kernels import bench
    from mlhood.kernels.layers import NETWORKS, distinct

    check_choice("network", network, list(NETWORKS))
    check_choice("layout", layout, ["plain", "blocked"])
    layers = distinct(NETWORKS[network]())
    if layout == "blocked" and (grouped := [layer for layer in layers if layer.groups > 1]):
        what, todo = "the blocked layout does not support groups within a block", "use --layout plain"
        raise KernelError(what, where=grouped[0].name, expected="one group", got=grouped[0].groups, todo=todo)
    cache = "hot" if hot else "interleaved"
    report(
        {"bench": "conv", "network": network, "layout": layout},
        lambda peak: bench.conv_cases(threads, rounds, cache, layers, cast("Layout", layout), peak),
        threads,
        as_json,
    )


def check_choice(what: str, value: str, choices: list[str]) -> None:
    """Raise a `KernelError` with the nearest choice if the value of an option is none of them."""
    from mlhood.errors import KernelError, nearest

    if value not in choices:
        raise KernelError(f"unknown {what}", expected=", ".join(choices), got=value, todo=nearest(value, choices))


def let_idle_threads_sleep() -> None:
    """Make idle threads of the libraries sleep: while spinning, they take processor time from what is timed next.

    The libraries read these variables when they are loaded, so this comes before their import.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def report(
    tags: dict[str, str], measure: Callable[[float], Iterable[ConvolutionCase]], threads: int, as_json: Path | None
) -> None:
    """Measure the machine's peak, print each case as soon as it is measured, then the means."""
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.kernels import bench
    from mlhood.measure import machine, peak

    if as_json is not None:
        check_output(as_json)
    limit = peak(threads).value
    echo(f"peak of {threads} threads: {limit / 1e9:.1f} GFLOP/s in float32")
    cases = []
    for case in measure(limit):
        echo(bench.line(case))
        cases.append(case)
    means: dict[str, Any] = {"all": bench.summary(cases)}
    if "network" in tags:
        for kernel in ("3x3", "1x1"):
            selected = [case for case in cases if f", {kernel}" in case.name]
            means |= {kernel: bench.summary(selected)} if selected else {}
    for name, mean in means.items():
        ratios = "  ".join(f"{baseline} {value:.3f}" for baseline, value in mean["ratios"].items())
        rate = f"{mean['gflops']:.1f} {bench.unit(cases[0])}{bench.share(mean)}"
        echo(f"geometric means, {name}: {rate}; ratio {ratios}")
    if as_json is not None:
        data = {**tags, "threads": threads, "peak_flops": limit, "machine": machine().as_dict()}
        data |= {"rows": [case.row() for case in cases], "summary": means}
        write_atomic(as_json, json.dumps(data, indent=2).encode())
