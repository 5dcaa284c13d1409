"""Figures of loop nests: the schedule as a path through the iteration space, and reuse by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mlhood.dataflow.nest.loop_nest import AccessCounts, Nest
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, COLOURS, HATCHES, LIGHT_GREY, VERMILION

_MAX_NUMBERED = 100


def iteration_space(nests: Mapping[str, Nest]) -> Figure:
    """Draw small nests of two loops side by side: their points, and the path of the schedule through them.

    Points are numbered in the order of their visits; dashed lines are tile boundaries.

    Args:
        nests: Nests by title, each over the same two original loops; more than 256 points are illegible.
    """
    size = (3.1 * len(nests), 3.4)
    figure, grid = plt.subplots(1, len(nests), figsize=size, dpi=90, squeeze=False, layout="constrained")
    for axes, (title, nest) in zip(grid[0], nests.items(), strict=True):
        _draw(axes, nest)
        axes.set_title(f"{title}\n{', '.join(nest.names)}", fontsize=10)
    paths = [f"{title}, loops {', '.join(nest.names)}: {_first_visits(nest)}" for title, nest in nests.items()]
    return set_alt_text(figure, f"Points of an iteration space, and the path of each schedule. {'; '.join(paths)}.")


def _first_visits(nest: Nest, most: int = 8) -> str:
    """Return the first points of the path by their original indices: `(0, 0), (0, 1), and so on`."""
    points = [f"({', '.join(map(str, point))})" for point in nest.visits()[:most].tolist()]
    return ", ".join(points) + (", and so on" if len(nest.visits()) > most else "")


def _draw(axes: Axes, nest: Nest) -> None:
    """Draw two loops like a matrix: the first downwards, the second to the right."""
    (down, rows), (right, columns) = nest.domain
    y, x = nest.visits().T
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xlabel=right, ylabel=down)
    axes.set(xticks=range(columns), yticks=range(rows))
    axes.xaxis.set(ticks_position="top", label_position="top")
    _tile_boundaries(axes.axhline, nest, 0)
    _tile_boundaries(axes.axvline, nest, 1)
    axes.plot(x, y, color=BLUE, lw=1.2, zorder=2)
    _jump_heads(axes, x, y)
    numbered = len(x) <= _MAX_NUMBERED
    axes.plot(x, y, "o", ms=13 if numbered else 4, mfc="white", mec=BLUE, zorder=3)
    for visit in range(len(x)) if numbered else ():
        axes.text(x[visit], y[visit], str(visit), ha="center", va="center", fontsize=7, zorder=4)
    axes.plot(x[:1], y[:1], "o", ms=16 if numbered else 8, mfc="none", mec=VERMILION, mew=1.8, zorder=3)


def _jump_heads(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Draw an arrow head on each jump of the path, to a new row or tile."""
    for start in range(len(x) - 1):
        begin, end = (x[start], y[start]), (x[start + 1], y[start + 1])
        if abs(end[0] - begin[0]) + abs(end[1] - begin[1]) > 1:
            style = {"arrowstyle": "-|>", "color": BLUE, "lw": 0, "shrinkB": 7}
            axes.annotate("", end, begin, zorder=2, arrowprops=style)


def _tile_boundaries(draw_line: Any, nest: Nest, axis: int) -> None:
    """Draw where tiles end along an axis: at multiples of the strides of a split's outer loops."""
    name, extent = nest.domain[axis]
    strides = {loop.stride for loop in nest.loops if loop.origin == name and loop.stride > 1}
    for boundary in sorted({boundary for stride in strides for boundary in range(stride, extent, stride)}):
        draw_line(boundary - 0.5, color="#444444", lw=1.3, ls="--", zorder=1)


def reuse(counts: Mapping[str, AccessCounts]) -> Figure:
    """Draw the number of reads per element that a level fetches: a bar for each level and array.

    Args:
        counts: Of one nest or of several, by title.
    """
    values = {
        title: {array: [nest.reuse(array, level.inside) for level in nest.levels] for array in nest.reads}
        for title, nest in counts.items()
    }
    label = "reads for each element fetched"
    bars = [len(nest.levels) * len(nest.reads) for nest in counts.values()]
    figure, grid = plt.subplots(
        len(counts),
        1,
        figsize=(4.9, 1 + 0.4 * len(counts) + 0.17 * sum(bars)),
        dpi=90,
        squeeze=False,
        sharex=True,
        height_ratios=bars,
        layout="constrained",
    )
    longest = max(value for arrays in values.values() for row in arrays.values() for value in row)
    names = list(dict.fromkeys(array for nest in counts.values() for array in nest.reads))
    styles = {name: (COLOURS[i % 6], HATCHES[i % 6]) for i, name in enumerate(names)}
    for axes, (title, nest) in zip(grid[:, 0], counts.items(), strict=True):
        axes.set(title=title, xlabel=label, xlim=(0, 1.3 * longest))
        _bars(axes, values[title], styles)
        labels = [f"{level.inside}\n{level.bytes:,} B" for level in nest.levels]
        axes.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.5, -0.5))
        axes.tick_params(axis="y", labelsize=8.5)
        for row in range(1, len(labels), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=LIGHT_GREY, zorder=0)
    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="black") for colour, hatch in styles.values()]
    figure.legend(patches, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    levels = [
        f"{title}: "
        + "; ".join(f"{level.inside}: {_level_text(values[title], i)}" for i, level in enumerate(nest.levels))
        for title, nest in counts.items()
    ]
    return set_alt_text(figure, f"Bar charts of {label}, by level and array. {'. '.join(levels)}.")


def _level_text(arrays: Mapping[str, list[float]], level: int) -> str:
    return listing((array, _number(values[level])) for array, values in arrays.items())


def _number(value: float) -> str:
    return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _bars(axes: Axes, arrays: Mapping[str, list[float]], styles: Mapping[str, tuple[str, str]]) -> None:
    height = 0.84 / len(arrays)
    for i, (array, values) in enumerate(arrays.items()):
        rows = np.arange(len(values)) + (i - (len(arrays) - 1) / 2) * height
        colour, hatch = styles[array]
        axes.barh(rows, values, height, color=colour, hatch=hatch, ec="black", lw=0.6)
        for row, value in zip(rows, values, strict=True):
            axes.text(value, row, f" {_number(value)}", va="center", fontsize=7.5)
