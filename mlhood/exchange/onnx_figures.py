"""Figures for P1: the ONNX ecosystem, and the contents of an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import DARK, LIGHT_BLUE, LIGHT_GREEN, LIGHT_YELLOW, arrow, box, canvas

PRODUCERS, FILE, CONSUMERS = LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN
FRAMEWORKS = ("PyTorch", "TensorFlow, Keras", "JAX", "scikit-learn, XGBoost")
TOOLS = (
    "ONNX Runtime: run it",
    "TensorRT, OpenVINO: run it on their chips",
    "TVM, onnx-mlir, Glow: compile it",
    "Netron: look at it",
)


def landscape() -> Figure:
    """Draw a converter for every pair of a framework and a tool; beside it, converters to and from one file."""
    figure, axes = canvas(9.4, 4.0)
    heights = [3.17 - 0.8 * row for row in range(4)]
    for x in (0.2, 1.7):
        axes.plot([x] * 4, heights, "o", ms=13, mfc=PRODUCERS if x < 1 else CONSUMERS, mec=DARK)
    axes.text(0.95, 3.75, "without: 4 · 4", ha="center", fontsize=11, weight="bold")
    for start, end in product(heights, heights):
        axes.plot([0.32, 1.58], [start, end], color=DARK, lw=0.9)
    _column(axes, 2.6, 1.75, "frameworks write", FRAMEWORKS, PRODUCERS)
    _column(axes, 7.4, 1.9, "everyone else reads", TOOLS, CONSUMERS)
    box(axes, 5.1, 0.45, 1.6, 3.05, "", FILE)
    axes.text(5.9, 3.75, "with ONNX: 4 + 4", ha="center", fontsize=11, weight="bold")
    axes.text(5.9, 2.6, "one file\nmodel.onnx", ha="center", fontsize=12, weight="bold")
    contents = "operators by\nname and version\n\nweights as tensors\n\nno code,\nno framework"
    axes.text(5.9, 0.65, contents, ha="center", fontsize=9.5)
    for y in heights:
        arrow(axes, (4.38, y), (5.07, 2 + (y - 2) / 3))
        arrow(axes, (6.73, 2 + (y - 2) / 3), (7.37, y))
    return set_alt_text(
        figure,
        "Left: lines join each of four frameworks to each of four tools. Right:",
        f"Frameworks ({', '.join(FRAMEWORKS)}) export one file, model.onnx: operators by name and version, weights as",
        f"tensors, no code. Everyone else imports it: {'; '.join(TOOLS)}.",
    )


def anatomy() -> Figure:
    """Draw the contents of an ONNX file: the model, its graph, and the purpose of the version fields."""
    figure, axes = canvas(6.4, 5.1)
    box(axes, 0.05, 0.1, 6.3, 4.95, "", "white")
    axes.text(0.25, 4.8, "ModelProto", fontsize=12, weight="bold", va="center")
    facts = [
        ("ir_version", "how the file itself is laid out"),
        ("opset_import", "which version of every operator is meant"),
        ("functions", "operators defined by other operators"),
    ]
    for row, (name, meaning) in enumerate(facts):
        box(axes, 0.25, 4.15 - 0.55 * row, 5.9, 0.45, f"{name}: {meaning}", PRODUCERS, fontsize=10)
    box(axes, 0.25, 0.25, 5.9, 2.65, "", FILE)
    axes.text(0.45, 2.65, "graph", fontsize=11, weight="bold", va="center")
    parts = [
        "input\nname, type, shape",
        "initializer\nweights by name",
        "node, node, node …\noperator, inputs,\noutputs, attributes",
        "output\nname, type, shape",
    ]
    for part, x, y, width in zip(
        parts, (0.4, 0.4, 2.4, 4.4), (1.5, 0.45, 1.1, 1.3), (1.55, 1.55, 1.6, 1.6), strict=True
    ):
        box(axes, x, y, width, 1.15 if "node" in part else 0.85, part, "white", fontsize=10)
    arrow(axes, (1.97, 1.9), (2.37, 1.8))
    arrow(axes, (1.97, 0.95), (2.37, 1.35))
    arrow(axes, (4.02, 1.7), (4.37, 1.7))
    fields = "; ".join(f"{name}, {meaning}" for name, meaning in facts)
    return set_alt_text(
        figure,
        f"An ONNX file is a ModelProto: {fields}; and a graph.",
        "In the graph, inputs and initializers (weights by name) lead through nodes to outputs.",
    )


def _column(axes: Axes, x: float, width: float, title: str, entries: Sequence[str], colour: str) -> None:
    axes.text(x + width / 2, 3.75, title, ha="center", fontsize=11, weight="bold")
    for row, entry in enumerate(entries):
        box(axes, x, 2.85 - 0.8 * row, width, 0.65, entry.replace(": ", "\n"), colour, fontsize=10)
