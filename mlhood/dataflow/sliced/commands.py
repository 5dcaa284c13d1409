"""The benchmark command of the sliced convolution."""

from __future__ import annotations

import typer

from mlhood.kernels.commands import Hot, Json, Network, Rounds, Threads, check_choice, let_idle_threads_sleep, report


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `bench`."""
    bench.command("sliced")(bench_sliced)


def bench_sliced(
    threads: Threads = 1,
    rounds: Rounds = 21,
    hot: Hot = False,
    network: Network = "resnet50",
    as_json: Json = None,
) -> None:
    """Time the sliced convolution, with the slicing that the analysis chooses, against im2col and torch.

    Grouped convolutions are left out.

    Example: mlhood bench sliced --threads 1 --json sliced.json
    """
    let_idle_threads_sleep()
    from mlhood.dataflow.sliced.bench import sliced_cases
    from mlhood.kernels.layers import NETWORKS, distinct

    check_choice("network", network, list(NETWORKS))
    layers = [layer for layer in distinct(NETWORKS[network]()) if layer.groups == 1]
    cache = "hot" if hot else "interleaved"
    report(
        {"bench": "sliced", "network": network},
        lambda peak: sliced_cases(threads, rounds, cache, layers, peak),
        threads,
        as_json,
    )
