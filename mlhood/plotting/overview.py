"""The picture that opens the README: the way from `model(x)` to the processor, with the five projects on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_GREY, LIGHT_YELLOW, arrow, box, canvas

BOX_WIDTH, BOX_HEIGHT, PITCH = 1.4, 0.9, 2.04
TORCH, JAX = 2.62, 0.52  # baseline of each lane, in inches
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}

# title, what happens there
TORCH_LANE = (
    ("model(x)", "PyTorch"),
    ("ONNX graph", "operators,\nweights, shapes"),
    ("typed graph", "fused, in float32\nor in 8 bits"),
    ("vector code", "a ladder\nof kernels"),
    ("tiles in caches", "sliced,\nreordered"),
)
TORCH_STEPS = ("export", "compile", "generate", "tile")
JAX_LANE = (
    ("f(x)", "JAX"),
    ("jaxpr", "traced once,\ndifferentiated"),
    ("HLO", "what XLA fuses\nand lays out"),
    ("sharded code", "collectives,\nmany devices"),
)
JAX_STEPS = ("trace", "lower", "partition")
# label, left and right end in boxes, lane, height of the label's line
PROJECTS = (
    ("P1  export and inspect", 0, 1, TORCH + 1.22),
    ("P2  a compiler", 1, 2, TORCH + 1.62),
    ("P3  kernels", 3, 3, TORCH + 1.22),
    ("P4  dataflow", 4, 4, TORCH + 1.22),
    ("P5  JAX under the hood: operators, tracing, gradients, XLA, a cluster", 0, 3, JAX - 0.24),
)


def overview() -> Figure:
    """Draw the two lanes, PyTorch's and JAX's, that meet in the processor; brackets name the projects.

    Returns:
        A figure 11.6 inches wide: black text on light fills, no meaning by colour alone.
    """
    figure, axes = canvas(11.6, 4.76)
    _lane(axes, TORCH_LANE, TORCH_STEPS, TORCH, LIGHT_BLUE)
    _lane(axes, JAX_LANE, JAX_STEPS, JAX, LIGHT_GREEN)
    _processor(axes)
    note = "networks, kernels and gradients are checked against ONNX Runtime, torch and NumPy"
    x, y = PITCH * 2.5 + BOX_WIDTH / 2 - 0.2, (JAX + BOX_HEIGHT + TORCH) / 2
    axes.text(x, y, note, **CENTRED, fontsize=10.2, style="italic", color="#333333")
    for label, first, last, y in PROJECTS:
        _bracket(axes, label, PITCH * first, PITCH * last + BOX_WIDTH, y)
    return figure


def _lane(axes: Axes, boxes: Sequence[tuple[str, str]], steps: Sequence[str], y: float, colour: str) -> None:
    """Draw boxes from left to right, with an arrow for each step from one to the next."""
    for i, (title, text) in enumerate(boxes):
        box(axes, PITCH * i, y, BOX_WIDTH, BOX_HEIGHT, "", LIGHT_YELLOW if i == 0 else colour)
        centre = PITCH * i + BOX_WIDTH / 2
        axes.text(centre, y + 0.68, title, **CENTRED, fontsize=11, weight="bold")
        axes.text(centre, y + 0.3, text, **CENTRED, fontsize=10.2)
    middle = y + BOX_HEIGHT / 2
    for i, step in enumerate(steps):
        arrow(axes, (PITCH * i + BOX_WIDTH + 0.03, middle), (PITCH * (i + 1) - 0.03, middle))
        centre = PITCH * i + (PITCH + BOX_WIDTH) / 2
        axes.text(centre, middle + 0.13, step, ha="center", fontsize=9, style="italic")


def _processor(axes: Axes) -> None:
    """Draw the processor at the right end of both lanes, with the arrow from each."""
    left, middle = PITCH * len(TORCH_LANE), (JAX + TORCH + BOX_HEIGHT) / 2
    box(axes, left, JAX, BOX_WIDTH, TORCH + BOX_HEIGHT - JAX, "", LIGHT_GREY)
    text = "vector units,\ncaches,\nmemory;\nsimulated: a\nsystolic array"
    axes.text(left + BOX_WIDTH / 2, middle + 0.42, "processor", ha="center", fontsize=11.5, weight="bold")
    axes.text(left + BOX_WIDTH / 2, middle - 0.26, text, **CENTRED, fontsize=10.2)
    for boxes, y in ((TORCH_LANE, TORCH), (JAX_LANE, JAX)):
        last = PITCH * (len(boxes) - 1) + BOX_WIDTH
        arrow(axes, (last + 0.03, y + BOX_HEIGHT / 2), (left - 0.03, y + BOX_HEIGHT / 2))


def _bracket(axes: Axes, label: str, left: float, right: float, y: float) -> None:
    """Draw a project's bracket, open towards its lane: above a lane, or below JAX's."""
    below = y < JAX
    tick = 0.08 if below else -0.08
    axes.plot([left, left, right, right], [y + tick, y, y, y + tick], color="#222222", lw=1.2)
    axes.text((left + right) / 2, y + (-0.2 if below else 0.08), label, ha="center", fontsize=11, weight="bold")
