"""The figure of P5's table: the speed-up by JAX."""

from __future__ import annotations

import math

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mlhood.jaxlab.tables import JAX, NO_JAX
from mlhood.measure.claims import ratio
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table
from mlhood.measure.units import times
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import ORANGE, SKY

_DARK, _SMALL = "#222222", 9.0
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def ratios(table: Table) -> Figure:
    """Draw the speed-up of each row by JAX, with its confidence interval: right of the line JAX is faster.

    Args:
        table: `operators_table`; rows that are not filled are left out.
    """
    speed_ups = {
        row: ratio(table[row, NO_JAX], table[row, JAX])
        for row in table.rows
        if (row, NO_JAX) in table and (row, JAX) in table
    }
    figure, axes = plt.subplots(figsize=(6.4, 1.3 + 0.42 * len(speed_ups)), dpi=90, layout="constrained")
    for y, speed_up in enumerate(speed_ups.values()):
        _bar(axes, y, speed_up)
    ends = [end for speed_up in speed_ups.values() for end in (speed_up.low, speed_up.high, 1.0)]
    low, high = min(ends) / 1.6, max(ends) * 1.6
    axes.set(xscale="log", yticks=range(len(speed_ups)), yticklabels=list(speed_ups), ylim=(len(speed_ups) - 0.4, -0.6))
    axes.set(xlabel=f"time of {NO_JAX} / time of {JAX}: right of the line JAX is faster")
    # margins for the labels beside the longest bars
    axes.set_xlim(low * (low / high) ** 0.2, high * (high / low) ** 0.2)
    ticks = [tick for tick in _FACTORS if low <= tick <= high]
    axes.set_xticks(ticks if len(ticks) < 10 else [tick for tick in ticks if math.log10(tick).is_integer()])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.axvline(1, color=_DARK, lw=1.6)
    bars = listing((row, times(speed_up.value)) for row, speed_up in speed_ups.items())
    return set_alt_text(figure, f"Bar chart of the speed-up by JAX, which loses below 1: {bars}.")


def _bar(axes: Axes, y: int, speed_up: Ratio) -> None:
    value, low, high = speed_up.value, speed_up.low, speed_up.high
    colour, hatch = (SKY, "") if value > 1 else (ORANGE, "//")
    axes.barh(y, value - 1, 0.6, left=1, color=colour, hatch=hatch, ec="black", lw=0.8)
    interval = [[value - low], [high - value]]
    axes.errorbar(value, y, xerr=interval, fmt="none", ecolor="white", capsize=4, capthick=3.5, lw=3.5)
    axes.errorbar(value, y, xerr=interval, fmt="none", ecolor=_DARK, capsize=3, lw=1.2)
    x, shift, side = (high, 6, "left") if value > 1 else (low, -6, "right")
    style = {"textcoords": "offset points", "ha": side, "va": "center", "fontsize": _SMALL}
    axes.annotate(times(value), (x, y), (shift, 0), **style)
