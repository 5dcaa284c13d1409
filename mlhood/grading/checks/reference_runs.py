"""Computations that checks run in an isolated process: on a student's graph, or with JAX, which a judge does not load.

This module imports no project: that would take longer than most of the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlhood.compiler.hir import Graph


def recipe_costs(
    graph: Graph, rows: dict[str, dict[str, Any]], columns: list[str], data: dict[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Quantise a float graph by each recipe and return its costs.

    Args:
        graph: From `image` to `logits`.
        rows: Arguments of `Recipe` by name.
        columns: The costs to return, of those in `summary`.
        data: `seen`, images for the profile, float32 [N, 1, 32, 32]; `images` to measure the costs on, float32
            [M, 1, 32, 32], and their `labels`, int64 [M].

    Returns:
        By name: the `row` of the table, and the SQNR of each layer when only that layer is quantised (`alone`, dB;
        for "power_of_two" only).
    """
    from mlhood.compiler.quantize import Recipe, layer_sqnr, profile, quantize, summary

    statistics, images = profile(graph, [{"image": data["seen"]}]), {"image": data["images"]}
    results = {}
    for name, arguments in rows.items():
        quantized = quantize(graph, statistics, Recipe(**arguments))
        costs = summary(graph, quantized, images, data["labels"])
        layers = layer_sqnr(graph, quantized, images) if name == "power_of_two" else None
        alone = {} if layers is None else dict(zip(layers.index.tolist(), layers["alone"].tolist(), strict=True))
        results[name] = {"row": {key: costs[key] for key in columns}, "alone": alone}
    return results


def step_gradient(seed: int) -> dict[str, np.ndarray]:
    """Return the gradient that the script `cluster_step.py SEED OUT` has to write, computed in one process.

    Args:
        seed: Of weights and data, `program.data(seed)`; the loss is `program.loss`.
    """
    import jax

    from mlhood.jaxlab.cluster import program

    gradient = jax.grad(program.loss)(*program.data(seed))
    return {name: np.asarray(value) for name, value in gradient.items()}
