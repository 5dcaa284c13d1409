"""The commands `mlhood bench ...`: kernels and networks against the libraries, and the machine's ceilings."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from mlhood.files.terminal import echo


def _writable(path: Path | None) -> Path | None:
    """Check that a report can be written, before anything is measured."""
    from mlhood.files.atomic import check_output

    if path is not None:
        check_output(path)
    return path


Cases = Iterable[tuple[str, int | None, dict[str, Callable[[], Any]]]]  # name, operations, and calls, ours first
Threads = Annotated[int, typer.Option(min=1, help="Threads of every alternative.")]
Rounds = Annotated[int, typer.Option(min=21, help="Rounds; each times every alternative once.")]
Inductor = Annotated[bool, typer.Option(help="Also time what torch.compile makes of the models.")]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the results to this file.", callback=_writable)]


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    for command in (_machine, _gemm, _conv, _sliced, _jax, _model):
        bench.command(command.__name__.removeprefix("_"))(command)


def _machine(
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; 1 and then all by default.")] = None,
) -> None:
    """Measure this machine's ceilings: multiply-adds from registers, bytes per second from each cache.

    Example: mlhood bench machine --threads 1
    """
    from mlhood.measure.limits import all_threads, ceilings

    for count in (1, all_threads()) if threads is None else (threads,):
        echo(f"{ceilings(count)}\n")


def _gemm(threads: Threads = 1, rounds: Rounds = 21) -> None:
    """Time our matrix product and NumPy's, for n from 256 to 2048.

    Example: mlhood bench gemm --threads 2
    """
    _configure()
    import numpy as np

    from mlhood.kernels import gemm

    def cases() -> Cases:
        rng = np.random.default_rng(0)
        for n in (256, 512, 1024, 2048):
            a, b = rng.standard_normal((2, n, n), np.float32)
            ours = lambda a=a, b=b: gemm.vectorised(a, b, threads=threads)  # noqa: E731
            yield f"n = {n}", 2 * n**3, {"vectorised": ours, "NumPy": lambda a=a, b=b: a @ b}

    _compare(cases(), threads, rounds)


def _conv(threads: Threads = 1, rounds: Rounds = 21) -> None:
    """Time our direct convolution, torch, ONNX Runtime and im2col over the convolutions of ResNet-50.

    Example: mlhood bench conv --threads 1
    """
    _configure()
    from mlhood.kernels.bench import alternatives, resnet50_layers

    layers = resnet50_layers()
    _compare(((each.name, each.geometry.flops, alternatives(each, threads)) for each in layers), threads, rounds)


def _sliced(threads: Threads = 1, rounds: Rounds = 21) -> None:
    """Time the sliced convolution, with the slicing that the analysis chooses, against the others, for C1 to C4.

    Example: mlhood bench sliced --threads 1
    """
    _configure()
    from mlhood.dataflow.sliced.sliced import Sliced
    from mlhood.kernels.bench import alternatives, random_operands
    from mlhood.kernels.tables import RESNET18

    def cases() -> Cases:
        for name, layer in RESNET18.items():
            x, w = random_operands(layer)
            sliced = Sliced(layer.geometry, w)
            ours = {"sliced": lambda x=x, sliced=sliced: sliced(x, threads=threads)}
            yield f"{name}, {sliced.slicing}", layer.geometry.flops, ours | alternatives(layer, threads)

    _compare(cases(), threads, rounds)


def _jax(threads: Threads = 1, rounds: Rounds = 21) -> None:
    """Time the rows of P5's table with JAX, compiled and eager, and in NumPy: operators of ResNet-18 and all of it.

    `bench model resnet18 --target cpu --target xla` times it beside torch and ONNX Runtime.

    Example: mlhood bench jax --threads 1
    """
    _configure(threads, jax=True)
    import jax

    from mlhood.jaxlab.operators.cases import cases

    def calls() -> Cases:
        for name, case in cases().items():
            compiled, on_device = jax.jit(case.with_jax), jax.device_put(case.arguments)
            eager = {"eager": lambda case=case, on_device=on_device: case.with_jax(*on_device)}
            numpy = {"NumPy": lambda case=case: case.no_jax(*case.arguments)}
            ours = {"JAX": lambda compiled=compiled, on_device=on_device: compiled(*on_device)}
            yield name, None, ours | eager | numpy

    _compare(calls(), threads, rounds)


def _compare(cases: Cases, threads: int, rounds: int) -> None:
    """Print our time in each case, and the others' times over ours with their intervals; then the geometric means."""
    from mlhood.measure import compare
    from mlhood.measure.units import duration

    means: dict[str, list[float]] = {}
    for name, flops, calls in cases:
        result = compare(calls, flops=flops, rounds=rounds, threads=threads)
        ours, *others = calls
        ratios = {other: result.ratio(other, ours) for other in others}
        for other, ratio in ratios.items():
            means.setdefault(other, []).append(ratio.value)
        shown = "  ".join(f"{other} {ratio}" for other, ratio in ratios.items())
        median = result[ours].median
        rate = f" ({flops / median / 1e9:.1f} GFLOP/s)" if flops else ""
        echo(f"{name}: {ours} {duration(median)}{rate}; others' time over ours: {shown}")
    shown = "  ".join(f"{other} {statistics.geometric_mean(ratios):.3f}" for other, ratios in means.items())
    echo(f"geometric means: {shown}")


def _write(path: Path | None, data: dict[str, Any]) -> None:
    """Write results, and the machine on which they were measured."""
    from mlhood.files.atomic import write_atomic
    from mlhood.measure import machine

    if path is not None:
        write_atomic(path, json.dumps(data | {"machine": machine().as_dict()}, indent=2).encode())


def _configure(threads: int | None = None, *, jax: bool = False) -> None:
    """Configure the libraries before they are imported, which is when they read these variables.

    Idle threads sleep: while spinning, they take processor time from what is timed next. JAX dispatches synchronously:
    otherwise each call would wake up another thread, which takes longer than a small operator.

    Args:
        threads: Their number in all libraries, where it is fixed when a process starts.
        jax: Whether JAX is used.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    if threads is not None:
        from mlhood.measure import environment

        os.environ.update(environment(threads, {}))
    if jax:
        import jax as library

        library.config.update("jax_cpu_enable_async_dispatch", False)


def _measured(rows: Iterable[Any]) -> list[Any]:
    """Print each row as soon as it is measured, and then whether JAX had another number of threads; return them."""
    measured = []
    for row in rows:
        echo(row)
        measured.append(row)
    # ONNX Runtime's threads are fixed by its session options
    for note in (note for note in measured[-1].result.unfixed if note.startswith("JAX")):
        echo(f"not fixed by --threads: {note}")
    return measured


def _model(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="lenet, resnet18, resnet50, mobilenet_v2, vit_block, gpt_block, all by default; or gpt2-prefill-128, "
            "gpt2-decode-128, gpt2-decode-1024, llama-prefill-128, llama-decode-1024, bert-128, vit, whisper.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = 1,
    batch: Annotated[int, typer.Option(min=1, help="Number of examples in a run.")] = 1,
    int8: Annotated[bool, typer.Option("--int8", help="Also time models quantised to int8.")] = False,
    inductor: Inductor = True,
    target: Annotated[
        list[str] | None, typer.Option(help="Our targets, the ratios' reference first; may be repeated.")
    ] = None,
    rounds: Rounds = 21,
    as_json: Json = None,
) -> None:
    """Time whole models on our targets, torch, ONNX Runtime, XLA, and OpenVINO if it is installed.

    A ratio is the time of an alternative divided by that of our first target: above 1, ours is faster.

    Of the peak is the share of the float32 operations per second that these threads can reach; of bandwidth, for our
    targets, the bytes that their kernels read and write, per second, as a share of what the threads copy from the
    slowest memory that was measured: a model that stays in faster caches can exceed it.

    Example: mlhood bench model resnet18 mobilenet_v2 --threads 1 --json models.json
    """
    _configure(threads, jax=True)
    from mlhood.compiler.backends.targets import check_target
    from mlhood.compiler.bench.model import NETWORKS, measure

    for each in target or ():
        check_target(each)
    limit, slowest = _ceilings(threads)
    options: Any = {"threads": threads, "batch": batch, "rounds": rounds, "int8": int8, "inductor": inductor}
    options |= {"peak": limit, "bandwidth": slowest and slowest["bytes_per_second"], "targets": target or ()}
    rows = [row.as_dict() for row in _measured(measure(names or list(NETWORKS)[:6], **options))]
    data = {"bench": "model", "threads": threads, "batch": batch, "peak_flops": limit, "bandwidth": slowest}
    _write(as_json, data | {"rows": rows})


def _ceilings(threads: int) -> tuple[float, dict[str, Any] | None]:
    """Measure and print the peak in operations per second, and the slowest memory: its level and bytes per second."""
    from mlhood.measure import ceilings

    limits = ceilings(threads)
    limit, levels = limits.peak.value, limits.bandwidths
    slowest = min(levels, key=lambda level: levels[level], default=None)
    echo(f"peak of {threads} threads: {limit / 1e9:.1f} GFLOP/s in float32")
    if slowest is None:
        return limit, None
    echo(f"bandwidth of {threads} threads: {levels[slowest] / 1e9:.1f} GB/s ({slowest})")
    return limit, {"level": slowest, "bytes_per_second": levels[slowest]}
