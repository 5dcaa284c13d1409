"""The picture of a roofline, readable without colour: dashes tell the levels apart, markers the series."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlhood.measure.roofline import Point, Roofline
from mlhood.measure.units import rate
from mlhood.plotting.diagram import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION
from mlhood.plotting.labels import label

_DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PINK, SKY)


def roofline(roof: Roofline, points: Sequence[Point], title: str = "Roofline") -> Figure:
    """Draw a roof for each level, and kernels as points under it; both axes are logarithmic.

    Args:
        roof: The machine's ceilings.
        points: Kernels; each is labelled with its name and its share of what it can attain from the slowest level.
        title: Written above.
    """
    figure, axes = plt.subplots(figsize=(8.6, 5.2), dpi=90, layout="constrained")
    axes.set(xscale="log", yscale="log", title=title)
    axes.set(xlabel="arithmetic intensity [FLOP/byte]", ylabel="performance [GFLOP/s]")
    left, right = _limits(roof, points)
    lowest = min([roof.attainable(left), *(point.rate for point in points)])
    axes.set(xlim=(left, right), ylim=(lowest / 2e9, 2.2 * roof.peak / 1e9))
    axes.grid(visible=True, which="major", color="#dddddd", lw=0.6)
    _roofs(axes, roof, left, right)
    _points(axes, points)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8.5, handlelength=3.5)
    names = [f"{point.name} ({point.rate / roof.attainable(point.intensity):.0%})" for point in points]
    label(axes, [(point.intensity, point.rate / 1e9) for point in points], names, fontsize=8.5)
    return figure


def _limits(roof: Roofline, points: Sequence[Point]) -> tuple[float, float]:
    ridges = [roof.ridge(level) for level in roof.bandwidths]
    told = [point.intensity for point in points]
    return min(ridges + told) / 4, max(ridges + told) * 4


def _roofs(axes: Axes, roof: Roofline, left: float, right: float) -> None:
    """Draw the slopes up to the peak, and the peak once; name each slope at its lower end, all above one another."""
    ordered = sorted(roof.bandwidths.items(), key=lambda item: -item[1])
    for i, (name, bandwidth) in enumerate(ordered):
        ridge = roof.ridge(name)
        x = np.array([left, ridge])
        dashes = _DASHES[i % len(_DASHES)]
        axes.plot(x, np.minimum(bandwidth * x, roof.peak) / 1e9, ls=dashes, color="#222222", lw=1.5,
                  label=f"{name}: {rate(bandwidth, 'B/s')}")  # fmt: skip
    axes.plot([roof.ridge(ordered[0][0]), right], [roof.peak / 1e9] * 2, color="#222222", lw=2.2)
    text = f"peak {rate(roof.peak)}"
    axes.annotate(text, (right, roof.peak / 1e9), (-4, 4), textcoords="offset points", ha="right", fontsize=9)


def _points(axes: Axes, points: Sequence[Point]) -> None:
    series = list(dict.fromkeys(point.series for point in points))
    for i, name in enumerate(series):
        own = [point for point in points if point.series == name]
        x, y = [point.intensity for point in own], [point.rate / 1e9 for point in own]
        marker, colour = _MARKERS[i % len(_MARKERS)], _COLOURS[i % len(_COLOURS)]
        line = axes.plot(x, y, ls="", ms=7, mec="black", mew=0.8, zorder=3, label=name or "_nolegend_")[0]
        line.set(marker=marker, color=colour, markeredgecolor="black")
