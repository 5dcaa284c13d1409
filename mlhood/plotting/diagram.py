"""Boxes, arrows and grids of cells on a blank canvas whose unit is the inch, for explanatory diagrams.

Light fills under black text; what a colour encodes, a position or a label encodes as well. The palette is Okabe and
Ito's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

BLUE, ORANGE, GREEN, VERMILION, SKY, PINK = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7"
LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN, LIGHT_GREY = "#cfe8f7", "#fbe7b5", "#cdeee0", "#eeeeee"
DARK, MUTED, THIN = "#222222", "#555555", "#999999"  # of lines and text
SMALL = 8.5  # font size in points
# of the series of a chart, which also differ without colour
COLOURS, LINE_COLOURS = (SKY, ORANGE, GREEN, VERMILION, PINK, BLUE), (BLUE, ORANGE, GREEN, VERMILION, PINK, SKY)
# of what a schedule keeps in place: weights, inputs or sums
STATIONARY = {"WS": (SKY, ""), "IS": (GREEN, "//"), "OS": (ORANGE, "..")}
HATCHES = ("", "//", "..", "xx", "\\\\", "oo")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)))

Point = tuple[float, float]


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches, and axes without a frame whose unit is the inch."""
    figure, axes = plt.subplots(figsize=(width, height), dpi=90)
    axes.set(xlim=(-0.05, width + 0.05), ylim=(0, height))
    axes.axis("off")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure, axes


def box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, **font: Any) -> None:
    """Draw a rounded box with its lower left corner at (x, y) and centred text."""
    shape = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.08", fc=colour, ec="#444444")
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", **font)


def arrow(axes: Axes, start: Point, end: Point, text: str = "") -> None:
    """Draw an arrow, with text above its midpoint."""
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": DARK, "lw": 1.6})
    axes.text((start[0] + end[0]) / 2, start[1] + 0.15, text, ha="center", fontsize=9.5)


@dataclass(frozen=True)
class Grid:
    """A grid of cells on a canvas whose unit is the inch; cells are indexed from the upper left.

    Args:
        axes: The axes to draw on.
        left: x of the left edge.
        top: y of the upper edge.
        rows: Number of rows.
        columns: Number of columns.
        wide: Width of a cell.
        high: Height of a cell.
    """

    axes: Axes
    left: float
    top: float
    rows: int
    columns: int
    wide: float
    high: float

    @property
    def right(self) -> float:
        """X of the right edge."""
        return self.left + self.columns * self.wide

    @property
    def bottom(self) -> float:
        """Y of the lower edge."""
        return self.top - self.rows * self.high

    @property
    def centre(self) -> Point:
        """Centre of the grid."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def middle(self, row: float, column: float) -> Point:
        """Return the centre of a cell."""
        return self.left + (column + 0.5) * self.wide, self.top - (row + 0.5) * self.high

    def fill(self, row: int, column: int, rows: int, columns: int, colour: str, hatch: str = "") -> None:
        """Colour a block of cells, below their lines and text."""
        self._patch(row, column, rows, columns, fc=colour, ec=THIN, hatch=hatch, lw=0, zorder=0.8)

    def outline(self, row: int, column: int, rows: int, columns: int, **line: Any) -> None:
        """Draw a line around a block of cells."""
        style = {"ec": DARK, "lw": 2.2, "zorder": 3} | line
        self._patch(row, column, rows, columns, fc="none", **style)

    def lines(self) -> None:
        """Draw the edges of all cells."""
        for row in range(self.rows + 1):
            y = self.top - row * self.high
            self.axes.plot([self.left, self.right], [y, y], color=THIN, lw=0.6, zorder=1)
        for column in range(self.columns + 1):
            x = self.left + column * self.wide
            self.axes.plot([x, x], [self.bottom, self.top], color=THIN, lw=0.6, zorder=1)

    def write(self, row: float, column: float, text: object, **font: Any) -> None:
        """Write into a cell; positions outside the grid are allowed, for row and column headers."""
        style = {"ha": "center", "va": "center", "fontsize": SMALL, "zorder": 4} | font
        self.axes.text(*self.middle(row, column), str(text), **style)

    def heads(self, rows: Sequence[object], columns: Sequence[object]) -> None:
        """Write row headers to the left of the grid and column headers above it."""
        for row, text in enumerate(rows):
            x = self.left - 0.08
            self.axes.text(x, self.middle(row, 0)[1], str(text), ha="right", va="center", fontsize=SMALL, color=MUTED)
        for column, text in enumerate(columns):
            x = self.middle(0, column)[0]
            self.axes.text(x, self.top + 0.06, str(text), ha="center", va="bottom", fontsize=SMALL, color=MUTED)

    def path(self, cells: Sequence[tuple[float, float]], **line: Any) -> None:
        """Draw an arrow through the centres of cells, each given as (row, column)."""
        points = np.array([self.middle(*cell) for cell in cells])
        style = {"color": DARK, "lw": 1.4, "zorder": 3} | line
        self.axes.plot(*points.T, solid_joinstyle="round", **style)
        head = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11} | style
        self.axes.annotate("", points[-1], points[-2], arrowprops=head)

    def _patch(self, row: int, column: int, rows: int, columns: int, **style: Any) -> None:
        corner = self.left + column * self.wide, self.top - (row + rows) * self.high
        self.axes.add_patch(Rectangle(corner, columns * self.wide, rows * self.high, **style))
