"""Cells in rows and columns: what the pictures of images and matrices are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from mlhood.errors import KernelError
from mlhood.plotting.diagram import Point

DARK, MUTED, THIN = "#222222", "#555555", "#999999"
SMALL = 8.5


@dataclass(frozen=True)
class Grid:
    """A grid on a canvas whose unit is the inch; cells are counted from the upper left.

    Args:
        axes: Where it is drawn.
        left: Its left edge.
        top: Its upper edge.
        rows: How many.
        columns: How many.
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
        """The right edge."""
        return self.left + self.columns * self.wide

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top - self.rows * self.high

    @property
    def centre(self) -> Point:
        """The point in the middle."""
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def middle(self, row: float, column: float) -> Point:
        """The point in the middle of a cell."""
        return self.left + (column + 0.5) * self.wide, self.top - (row + 0.5) * self.high

    def fill(self, row: int, column: int, rows: int, columns: int, colour: str, hatch: str = "") -> None:
        """Colour cells, under their lines and their numbers."""
        self._patch(row, column, rows, columns, fc=colour, ec=THIN, hatch=hatch, lw=0, zorder=0.8)

    def outline(self, row: int, column: int, rows: int, columns: int, **line: Any) -> None:
        """Draw a line around cells."""
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
        """Write into a cell; a place outside of the grid is allowed, for heads of rows and columns."""
        style = {"ha": "center", "va": "center", "fontsize": SMALL, "zorder": 4} | font
        self.axes.text(*self.middle(row, column), str(text), **style)

    def heads(self, rows: Sequence[object], columns: Sequence[object]) -> None:
        """Write the indices of rows at the left and of columns above."""
        for row, text in enumerate(rows):
            x = self.left - 0.08
            self.axes.text(x, self.middle(row, 0)[1], str(text), ha="right", va="center", fontsize=SMALL, color=MUTED)
        for column, text in enumerate(columns):
            x = self.middle(0, column)[0]
            self.axes.text(x, self.top + 0.06, str(text), ha="center", va="bottom", fontsize=SMALL, color=MUTED)

    def path(self, places: Sequence[tuple[float, float]], **line: Any) -> None:
        """Draw an arrow through the middles of cells, (row, column) by (row, column)."""
        points = np.array([self.middle(*place) for place in places])
        style = {"color": DARK, "lw": 1.4, "zorder": 3} | line
        self.axes.plot(*points.T, solid_joinstyle="round", **style)
        arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11} | style
        self.axes.annotate("", points[-1], points[-2], arrowprops=arrow)

    def _patch(self, row: int, column: int, rows: int, columns: int, **style: Any) -> None:
        corner = self.left + column * self.wide, self.top - (row + rows) * self.high
        self.axes.add_patch(Rectangle(corner, columns * self.wide, rows * self.high, **style))


def check_counts(least: int = 1, **counts: int) -> None:
    """Refuse what cannot be counted.

    Raises:
        KernelError: A value is no integer, or less than `least`.
    """
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < least:
            raise KernelError(f"this {name} cannot be drawn", expected=f"an integer from {least} on", got=repr(value))


def check_room(what: str, count: int, most: int) -> None:
    """Refuse what would be too small to read.

    Raises:
        KernelError: There is more than fits into a picture.
    """
    if count > most:
        raise KernelError(f"so many {what} do not fit into a picture that can be read", expected=f"at most {most}",
                          got=count, todo="draw a smaller case")  # fmt: skip
