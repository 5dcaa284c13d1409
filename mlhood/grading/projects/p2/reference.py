"""What the package itself makes of a submission's graph; runs in a process apart, for the graph is the student's."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import Graph
from mlhood.compiler.quantize import Recipe, layer_sqnr, profile, quantize, sqnr
from mlhood.grading.projects.p2.accuracy import CALIBRATION
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
    seen = profile(graph, [{"image": data.train_images[:CALIBRATION]}])
    exact = run(graph, image=data.test_images)["logits"]
    found = {}
    for name, arguments in rows.items():
        quantized = quantize(graph, seen, Recipe(**arguments))
        logits = run(quantized, image=data.test_images)["logits"]
        row = {
            "accuracy": float(np.mean(logits.argmax(1) == data.test_labels)),
            "agreement": float(np.mean(logits.argmax(1) == exact.argmax(1))),
            "sqnr": float(sqnr(exact, logits)),
            "bytes": sum(constant.data.nbytes for constant in quantized.constants.values()),
            "nodes": len(quantized.nodes),
        }
        alone = layer_sqnr(graph, quantized, {"image": data.test_images})["alone"] if name == "power_of_two" else {}
        found[name] = {"row": row, "alone": {str(key): float(value) for key, value in alone.items()}}
    return found
