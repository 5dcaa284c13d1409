"""Boxes and arrows on a bare canvas: what the course's explaining pictures are put together from.

Light fills under black text; what a colour says is said by place or words as well. The colours are Okabe and Ito's.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

BLUE, ORANGE, GREEN, VERMILION, SKY, PINK = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7"
LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN, LIGHT_GREY = "#cfe8f7", "#fbe7b5", "#cdeee0", "#eeeeee"

Point = tuple[float, float]


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches, and axes without frame whose unit is the inch."""
    figure, axes = plt.subplots(figsize=(width, height), dpi=90)
    axes.set(xlim=(-0.05, width + 0.05), ylim=(0, height))
    axes.axis("off")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure, axes


def box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, **font: Any) -> None:
    """Draw a rounded box with its lower left corner at (x, y), and text in its middle."""
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", fc=colour, ec="#444444")
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", **font)


def arrow(axes: Axes, start: Point, end: Point, text: str = "") -> None:
    """Draw an arrow, with text over its middle."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#222222", "lw": 1.6})
    axes.text((start[0] + end[0]) / 2, start[1] + 0.15, text, ha="center", fontsize=9.5)
