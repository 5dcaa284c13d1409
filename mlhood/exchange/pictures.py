"""Pictures for P1: where ONNX stands, and what is inside an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

# Three of the Okabe-Ito colours, light enough for black text; the boxes are told apart by their place and
# words too.
MAKERS, FILE, READERS = "#cfe8f7", "#fbe7b5", "#cdeee0"


def landscape() -> Figure:
    """Who writes ONNX, what the file is, and who reads it."""
    figure, axes = _canvas(9.0, 4.2)
    _column(
        axes,
        0.0,
        "frameworks write",
        ["PyTorch", "TensorFlow, Keras", "JAX", "scikit-learn, XGBoost"],
        MAKERS,
    )
    _column(axes, 6.6, "everyone else reads", READING, READERS)
    _box(axes, 3.3, 0.55, 2.4, 3.0, "one file\nmodel.onnx", FILE, fontsize=13, weight="bold")
    axes.text(
        4.5,
        0.9,
        "operators by name and version\nweights as tensors\nno code, no framework",
        ha="center",
        fontsize=8.5,
    )
    _arrow(axes, (2.45, 2.0), (3.25, 2.0), "export")
    _arrow(axes, (5.75, 2.0), (6.55, 2.0), "import")
    return figure


READING = [
    "ONNX Runtime: run it",
    "TensorRT, OpenVINO: run it on their chips",
    "TVM, onnx-mlir, Glow: compile it",
    "Netron: look at it",
]


def anatomy() -> Figure:
    """What is inside an ONNX file: the model, its graph, and what the versions are for."""
    figure, axes = _canvas(9.0, 3.9)
    _box(axes, 0.05, 0.1, 8.9, 3.7, "", "white")
    axes.text(0.25, 3.5, "ModelProto", fontsize=12, weight="bold", va="center")
    facts = [
        ("ir_version", "how the file itself is laid out"),
        ("opset_import", "which version of every operator is meant"),
        ("functions", "operators defined by other operators"),
    ]
    for row, (name, meaning) in enumerate(facts):
        _box(axes, 0.25, 2.4 - 0.95 * row, 3.3, 0.75, f"{name}\n{meaning}", MAKERS, fontsize=8.5)
    _box(axes, 3.8, 0.35, 4.95, 2.95, "", FILE)
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
        _box(axes, x, y, width, 0.85, part, "white", fontsize=8.5)
    _arrow(axes, (5.58, 2.27), (5.72, 2.27))
    _arrow(axes, (5.2, 1.48), (5.9, 1.82))
    _arrow(axes, (7.85, 1.82), (7.85, 1.48))
    return figure


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(width, height), dpi=90)
    axes.set(xlim=(-0.05, width + 0.05), ylim=(0, height))
    axes.axis("off")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure, axes


def _column(axes: Axes, x: float, title: str, entries: Sequence[str], colour: str) -> None:
    axes.text(x + 1.2, 3.85, title, ha="center", fontsize=11, weight="bold")
    for row, entry in enumerate(entries):
        _box(axes, x, 2.85 - 0.8 * row, 2.4, 0.65, entry.replace(": ", "\n"), colour, fontsize=9)


def _box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, **font) -> None:
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", fc=colour, ec="#444444")
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", **font)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "") -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#222222", "lw": 1.6})
    axes.text((start[0] + end[0]) / 2, start[1] + 0.15, text, ha="center", fontsize=9.5)
