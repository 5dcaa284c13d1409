"""The commands `mlhood bench model` and `mlhood bench transformers`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mlhood.files.terminal import echo


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `bench`."""
    bench.command("model")(bench_model)
    bench.command("transformers")(bench_transformers)


def bench_model(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="lenet, resnet18, resnet50, mobilenet_v2, vit_block, gpt_block; all by default.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every alternative.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Number of examples in a run.")] = 1,
    int8: Annotated[bool, typer.Option("--int8", help="Also time models quantised to int8.")] = False,
    inductor: Annotated[bool, typer.Option(help="Also time what torch.compile makes of the models.")] = True,
    target: Annotated[
        list[str] | None, typer.Option(help="Our targets, the ratios' reference first; may be repeated.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds; each times every alternative once.")] = 21,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
) -> None:
    """Time whole models on our targets, torch, ONNX Runtime, XLA, and OpenVINO if it is installed.

    A ratio is the time of an alternative divided by that of our first target: above 1, ours is faster.

    Of the peak is the share of the float32 operations per second that these threads can reach; of bandwidth, for our
    targets, the bytes that their kernels read and write, per second, as a share of what the threads copy from the
    slowest memory that was measured: a model that stays in faster caches can exceed it. The peak resident memory is
    that of a new process that loads the file and runs it, with our kernels in the cache, beside ONNX Runtime's.

    Example: mlhood bench model resnet18 mobilenet_v2 --threads 1 --json models.json
    """
    _configure(threads)
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # it would wake up another thread for each call
    from mlhood.compiler.backends.targets import check_target
    from mlhood.compiler.bench.model import NETWORKS, measure
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.measure import machine

    if as_json is not None:
        check_output(as_json)
    for each in target or ():
        check_target(each)
    limit, slowest = _ceilings(threads)
    rows = []
    for row in measure(
        names or list(NETWORKS),
        threads=threads,
        batch=batch,
        rounds=rounds,
        peak=limit,
        bandwidth=None if slowest is None else slowest["bytes_per_second"],
        int8=int8,
        inductor=inductor,
        targets=target or (),
    ):
        echo(row)
        rows.append(row)
    # ONNX Runtime's threads are fixed by its session options
    for note in (note for note in rows[-1].result.unfixed if note.startswith("JAX")):
        echo(f"not fixed by --threads: {note}")
    if as_json is not None:
        data = {"bench": "model", "threads": threads, "batch": batch, "peak_flops": limit}
        data |= {"bandwidth": slowest, "machine": machine().as_dict(), "rows": [row.as_dict() for row in rows]}
        write_atomic(as_json, json.dumps(data, indent=2).encode())


def bench_transformers(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="gpt2-prefill-128, gpt2-decode-128, gpt2-decode-1024, bert-128, vit, llama-prefill-128, "
            "llama-decode-1024, whisper; all by default.",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        list[int] | None, typer.Option(min=1, help="Threads of every alternative; may be repeated. 1 and 2 by default.")
    ] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers, for a quick test; else the real number.")] = None,
    inductor: Annotated[bool, typer.Option(help="Also time what torch.compile makes of the models.")] = True,
    small: Annotated[bool, typer.Option(help="Also time decode steps with weights of 8 and 4 bits.")] = True,
    rounds: Annotated[int, typer.Option(min=21, help="Rounds; each times every alternative once.")] = 21,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
) -> None:
    """Time transformers on our target cpu, ONNX Runtime, torch, and OpenVINO if it is installed.

    A ratio is the time of an alternative divided by ours: above 1, ours is faster. Of bandwidth is what a run must read
    and write at least (weights and cache once), per second, as a share of what the threads can read from memory. A
    growing cache is that of the step before, in the same memory; the others copy theirs. Weights of 8 bits have a scale
    for each channel, those of 4 bits one for 32; their loss is reported in dB and as perplexity.

    Example: mlhood bench transformers gpt2-decode-128 --layers 2 --threads 1
    """
    counts = threads or [1, 2]
    _configure(max(counts))
    from mlhood.compiler.bench.transformers import CASES, measure
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.measure import machine
    from mlhood.measure.limits import peak, reading

    if as_json is not None:
        check_output(as_json)
    rows = []
    for count in counts:
        limit, read = peak(count).value, reading(count).value
        echo(f"{count} threads: peak {limit / 1e9:.1f} GFLOP/s in float32, {read / 1e9:.1f} GB/s read from memory")
        options: Any = {"peak": limit, "inductor": inductor, "small": small, "bandwidth": read}
        for row in measure(names or list(CASES), threads=count, layers=layers, rounds=rounds, **options):
            echo(row)
            rows.append(row.as_dict() | {"peak_flops": limit, "bandwidth": read})
    if as_json is not None:
        data = {"bench": "transformers", "layers": layers, "machine": machine().as_dict(), "rows": rows}
        write_atomic(as_json, json.dumps(data, indent=2).encode())


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


def _configure(threads: int) -> None:
    """Fix the libraries' threads before they are imported, and let waiting threads sleep instead of spin."""
    from mlhood.measure import environment

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    os.environ.update(environment(threads, {}))
