"""Figures for P1: the ONNX ecosystem, and the contents of an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_YELLOW, arrow, box, canvas

PRODUCERS, FILE, CONSUMERS = LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN
FRAMEWORKS = ("PyTorch", "TensorFlow, Keras", "JAX", "scikit-learn, XGBoost")
TOOLS = (
    "ONNX Runtime: run it",
    "TensorRT, OpenVINO: run it on their chips",
    "TVM, onnx-mlir, Glow: compile it",
    "Netron: look at it",
)


def landscape() -> Figure:
    """Draw the frameworks that write ONNX, the file, and the tools that read it."""
    figure, axes = canvas(9.0, 4.2)
    _column(axes, 0.0, "frameworks write", FRAMEWORKS, PRODUCERS)
    _column(axes, 6.6, "everyone else reads", TOOLS, CONSUMERS)
    box(axes, 3.3, 0.55, 2.4, 3.0, "one file\nmodel.onnx", FILE, fontsize=13, weight="bold")
    contents = "operators by name and version\nweights as tensors\nno code, no framework"
    axes.text(4.5, 0.9, contents, ha="center", fontsize=8.5)
    arrow(axes, (2.45, 2.0), (3.25, 2.0), "export")
    arrow(axes, (5.75, 2.0), (6.55, 2.0), "import")
    return set_alt_text(
        figure,
        f"Frameworks ({', '.join(FRAMEWORKS)}) export one file, model.onnx: operators by name and version, weights as",
        f"tensors, no code. Everyone else imports it: {'; '.join(TOOLS)}.",
    )


def anatomy() -> Figure:
    """Draw the contents of an ONNX file: the model, its graph, and the purpose of the version fields."""
    figure, axes = canvas(9.0, 3.9)
    box(axes, 0.05, 0.1, 8.9, 3.7, "", "white")
    axes.text(0.25, 3.5, "ModelProto", fontsize=12, weight="bold", va="center")
    facts = [
        ("ir_version", "how the file itself is laid out"),
        ("opset_import", "which version of every operator is meant"),
        ("functions", "operators defined by other operators"),
    ]
    for row, (name, meaning) in enumerate(facts):
        box(axes, 0.25, 2.4 - 0.95 * row, 3.3, 0.75, f"{name}\n{meaning}", PRODUCERS, fontsize=8.5)
    box(axes, 3.8, 0.35, 4.95, 2.95, "", FILE)
    axes.text(4.0, 3.0, "graph", fontsize=11, weight="bold", va="center")
    parts = [
        "input\nname, type, shape",
        "initializer\nweights by name",
        "node, node, node …\noperator, inputs, outputs, attributes",
        "output\nname, type, shape",
    ]
    for part, x, y, width in zip(
        parts, (4.0, 4.0, 5.75, 7.15), (1.85, 0.6, 1.85, 0.6), (1.55, 1.55, 2.8, 1.4), strict=True
    ):
        box(axes, x, y, width, 0.85, part, "white", fontsize=8.5)
    arrow(axes, (5.58, 2.27), (5.72, 2.27))
    arrow(axes, (5.2, 1.48), (5.9, 1.82))
    arrow(axes, (7.85, 1.82), (7.85, 1.48))
    fields = "; ".join(f"{name}, {meaning}" for name, meaning in facts)
    return set_alt_text(
        figure,
        f"An ONNX file is a ModelProto: {fields}; and a graph.",
        "In the graph, inputs and initializers (weights by name) lead through nodes to outputs.",
    )


def _column(axes: Axes, x: float, title: str, entries: Sequence[str], colour: str) -> None:
    axes.text(x + 1.2, 3.85, title, ha="center", fontsize=11, weight="bold")
    for row, entry in enumerate(entries):
        box(axes, x, 2.85 - 0.8 * row, 2.4, 0.65, entry.replace(": ", "\n"), colour, fontsize=9)
