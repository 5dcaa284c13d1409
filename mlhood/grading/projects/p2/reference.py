"""What the package itself makes of a submission's graph; runs in a process apart, for the graph is the student's."""

from __future__ import annotations

from typing import Any

from mlhood.compiler.hir import Graph
from mlhood.compiler.quantize import Recipe, layer_sqnr, profile, quantize, summary
from mlhood.grading.projects.p2.accuracy import CALIBRATION, COLUMNS
from mlhood.models import digits


def measure(graph: Graph, rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Quantise a float graph by each recipe, and say what it costs on the digits that are held out.

    Args:
        graph: From `image` to `logits`.
        rows: Arguments of `Recipe` by name.

    Returns:
        By name: the `row` of the table, and for each layer the SQNR that its own quantisation leaves (`alone`, dB).
    """
    data = digits()
    images, labels = {"image": data.test_images}, data.test_labels
    seen = profile(graph, [{"image": data.train_images[:CALIBRATION]}])
    found = {}
    for name, arguments in rows.items():
        quantized = quantize(graph, seen, Recipe(**arguments))
        row = {key: value for key, value in summary(graph, quantized, images, labels).items() if key in COLUMNS}
        layers = layer_sqnr(graph, quantized, images) if name == "power_of_two" else None
        alone = {} if layers is None else dict(zip(layers.index.tolist(), layers["alone"].tolist(), strict=True))
        found[name] = {"row": row, "alone": alone}
    return found
