"""What checks have worked out in a process apart: of a graph that is the student's, or with JAX, which a judge lacks.

It imports no project: that would take longer than most of the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlhood.compiler.hir import Graph


def recipe_costs(
    graph: Graph, rows: dict[str, dict[str, Any]], columns: list[str], data: dict[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Quantise a float graph by each recipe, and say what it costs.

    Args:
        graph: From `image` to `logits`.
        rows: Arguments of `Recipe` by name.
        columns: Which costs, of those that `summary` tells.
        data: `seen`, images for the profile, float32 [N, 1, 32, 32]; `images` on which the cost is measured, float32
            [M, 1, 32, 32], and their `labels`, int64 [M].

    Returns:
        By name: the `row` of the table, and for each layer the SQNR that its own quantisation leaves (`alone`, dB;
        for "power_of_two" only).
    """
    from mlhood.compiler.quantize import Recipe, layer_sqnr, profile, quantize, summary

    known, images = profile(graph, [{"image": data["seen"]}]), {"image": data["images"]}
    found = {}
    for name, arguments in rows.items():
        quantized = quantize(graph, known, Recipe(**arguments))
        costs = summary(graph, quantized, images, data["labels"])
        layers = layer_sqnr(graph, quantized, images) if name == "power_of_two" else None
        alone = {} if layers is None else dict(zip(layers.index.tolist(), layers["alone"].tolist(), strict=True))
        found[name] = {"row": {key: costs[key] for key in columns}, "alone": alone}
    return found


def step_gradient(seed: int) -> dict[str, np.ndarray]:
    """Return the gradient that a script `cluster_step.py SEED OUT` has to write, from one process.

    Args:
        seed: Of weights and data, `program.data(seed)`; the loss is `program.loss`.
    """
    import jax

    from mlhood.jaxlab.cluster import program

    found = jax.grad(program.loss)(*program.data(seed))
    return {name: np.asarray(value) for name, value in found.items()}
