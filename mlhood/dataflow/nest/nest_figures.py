"""Pictures of loop nests: the order in which the iteration space is visited, and what each level reuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mlhood.dataflow.nest.count import Counts
from mlhood.dataflow.nest.data import BYTES
from mlhood.dataflow.nest.nest import Nest
from mlhood.errors import NestError
from mlhood.plotting.diagram import BLUE, GREEN, LIGHT_GREY, ORANGE, PINK, SKY, VERMILION

MOST_POINTS = 256  # more cannot be told apart
_NUMBERED = 100
_HATCHES = ("", "//", "..", "xx", "\\\\", "oo")
_COLOURS = (SKY, ORANGE, GREEN, VERMILION, PINK, BLUE)


def iteration_space(nests: Mapping[str, Nest]) -> Figure:
    """Draw small nests of two or three loops side by side: their points, and the path of the visits through them.

    Points are numbered as they are visited; dashed lines are the borders of tiles.

    Args:
        nests: Nests by the titles of their pictures, each over the same first loops.

    Raises:
        NestError: If a nest had more or fewer loops when it was first written, or too many points.
    """
    sizes = {title: len(_checked(nest).domain) for title, nest in nests.items()}
    flat = all(size == 2 for size in sizes.values())
    figure = plt.figure(figsize=(3.9 * len(nests), 4.1), dpi=90, layout="constrained" if flat else None)
    if not flat:  # what constrained layout knows nothing of: the labels around a cube
        figure.subplots_adjust(0.02, 0.06, 0.96, 0.84, 0.12)
    for place, (title, nest) in enumerate(nests.items(), 1):
        if sizes[title] == 2:
            _plane(figure.add_subplot(1, len(nests), place), nest)
        else:
            _space(figure.add_subplot(1, len(nests), place, projection="3d"), nest)
        figure.axes[-1].set_title(f"{title}\n{', '.join(nest.names)}", fontsize=10)
    return figure


def _checked(nest: Nest) -> Nest:
    points = int(np.prod([extent for _, extent in nest.domain]))
    if len(nest.domain) not in (2, 3) or points > MOST_POINTS:
        got = ", ".join(f"{name} < {extent}" for name, extent in nest.domain)
        raise NestError("only a small iteration space can be drawn", got=got,
                        expected=f"two or three loops, {MOST_POINTS} points")  # fmt: skip
    return nest


def _plane(axes: Axes, nest: Nest) -> None:
    """Draw two loops: the first downwards, the second to the right, as a matrix is written."""
    (down, rows), (right, columns) = nest.domain
    y, x = nest.visits().T
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xlabel=right, ylabel=down)
    axes.set(xticks=range(columns), yticks=range(rows))
    axes.xaxis.set(ticks_position="top", label_position="top")
    _borders(axes.axhline, nest, 0)
    _borders(axes.axvline, nest, 1)
    axes.plot(x, y, color=BLUE, lw=1.2, zorder=2)
    _heads(axes, x, y)
    numbered = len(x) <= _NUMBERED
    axes.plot(x, y, "o", ms=13 if numbered else 4, mfc="white", mec=BLUE, zorder=3)
    for number in range(len(x)) if numbered else ():
        axes.text(x[number], y[number], str(number), ha="center", va="center", fontsize=7, zorder=4)
    axes.plot(x[:1], y[:1], "o", ms=16 if numbered else 8, mfc="none", mec=VERMILION, mew=1.8, zorder=3)


def _heads(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """Draw the path's long ways, back to a new row or tile, dashed and with a head."""
    for start in range(len(x) - 1):
        way = np.array([x[start + 1] - x[start], y[start + 1] - y[start]])
        if np.abs(way).sum() > 1:
            axes.annotate("", (x[start + 1], y[start + 1]), (x[start], y[start]), zorder=2,
                          arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 0, "shrinkB": 7})  # fmt: skip


def _borders(line: Any, nest: Nest, axis: int) -> None:
    """Draw where tiles end along an axis: at the multiples of what the outer loops of a split step by."""
    extent = nest.domain[axis][1]
    steps = {abs(factor) for _, factor in nest.origin[axis].terms if abs(factor) > 1}
    for place in sorted({place for step in steps for place in range(step, extent, step)}):
        line(place - 0.5, color="#444444", lw=1.3, ls="--", zorder=1)


def _space(axes: Any, nest: Nest) -> None:
    """Draw three loops, the first downwards, and the first quarter of the path: all of it would be a tangle."""
    (down, _), (right, _), (back, _) = nest.domain
    z, x, y = nest.visits().T
    first = max(2, min(len(x) // 4, _NUMBERED))
    axes.scatter(x[first:], y[first:], z[first:], s=12, c="white", ec="#777777", lw=0.7, depthshade=False)
    axes.plot(x[:first], y[:first], z[:first], color=BLUE, lw=1.3)
    axes.scatter(x[:first], y[:first], z[:first], s=24, c=ORANGE, ec="black", lw=0.6, depthshade=False)
    for number in range(first):
        axes.text(x[number], y[number], z[number], f" {number}", fontsize=8, va="bottom")
    axes.set(xlabel=right, ylabel=back, zlabel=down)
    axes.invert_zaxis()
    for axis, (_, extent) in zip((axes.zaxis, axes.xaxis, axes.yaxis), nest.domain, strict=True):
        axis.set_ticks(range(extent))


def reuse(counts: Mapping[str, Counts]) -> Figure:
    """Draw how often an element is read for each time that a level fetches it: a bar for each level and array.

    Args:
        counts: Of one nest or of several, by the titles of their pictures.
    """
    values = {
        title: {array: [one.reuse(array, level.inside) for level in one.levels] for array in one.reads}
        for title, one in counts.items()
    }
    return _levels(counts, values, "reads for each element fetched")


def traffic(counts: Mapping[str, Counts]) -> Figure:
    """Draw the bytes that a level fetches and takes back: a bar for each level and array. Arguments as for `reuse`."""
    values = {
        title: {
            array: [BYTES * (level.fetched[array] + level.written[array]) or np.inf for level in one.levels]
            for array in one.reads
        }
        for title, one in counts.items()
    }
    return _levels(counts, values, "bytes that come and go")


def _levels(counts: Mapping[str, Counts], values: Mapping[str, Mapping[str, list[float]]], label: str) -> Figure:
    """Draw bars for each level and array; an infinite value says that the array is made there."""
    rows = max(len(one.levels) * len(one.reads) for one in counts.values())
    figure, grid = plt.subplots(1, len(counts), figsize=(4.9 * len(counts), 1.2 + 0.2 * rows), dpi=90, squeeze=False,
                                sharex=True, layout="constrained")  # fmt: skip
    numbers = [number for one in values.values() for bars in one.values() for number in bars if np.isfinite(number)]
    names = list(dict.fromkeys(array for one in counts.values() for array in one.reads))
    looks = {name: (_COLOURS[place % 6], _HATCHES[place % 6]) for place, name in enumerate(names)}
    for axes, (title, one) in zip(grid[0], counts.items(), strict=True):
        axes.set(title=title, xlabel=label, xscale="log", xlim=(0.8 * min(numbers), 6 * max(numbers)))
        _bars(axes, values[title], looks, min(numbers))
        labels = [f"{level.inside}\n{level.bytes:,} B" for level in one.levels]
        axes.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.5, -0.5))
        axes.tick_params(axis="y", labelsize=8.5)
        for row in range(1, len(labels), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=LIGHT_GREY, zorder=0)
    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="black") for colour, hatch in looks.values()]
    figure.legend(patches, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure


def _bars(axes: Axes, values: Mapping[str, list[float]], looks: Mapping[str, tuple[str, str]], least: float) -> None:
    height = 0.84 / len(values)
    for place, (array, numbers) in enumerate(values.items()):
        rows = np.arange(len(numbers)) + (place - (len(values) - 1) / 2) * height
        lengths = [number if np.isfinite(number) else least for number in numbers]
        colour, hatch = looks[array]
        axes.barh(rows, lengths, height, color=colour, hatch=hatch, ec="black", lw=0.6)
        for row, length, number in zip(rows, lengths, numbers, strict=True):
            text = f"{number:,.4g}" if number < 1000 else f"{number:,.0f}"
            axes.text(length, row, f" {text}" if np.isfinite(number) else " made here", va="center", fontsize=7.5)
