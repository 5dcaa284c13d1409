"""Figures of P5's measurements: the speed-up by JAX, and the stages before the first result."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mlhood.jaxlab.tables import JAX, NO_JAX
from mlhood.jaxlab.timing import Stages
from mlhood.measure.claims import ratio
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table
from mlhood.measure.units import duration, times
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import GREEN, LIGHT_GREY, ORANGE, PINK, SKY

_DARK, _SMALL = "#222222", 9.0
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_STAGES = {  # colours that differ in lightness too, and hatches for prints without colour
    "trace": (SKY, ""),
    "lower": (ORANGE, "//"),
    "compile": (LIGHT_GREY, ""),
    "first": (GREEN, ".."),
    "run": (PINK, "xx"),
}


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


def stages(rows: Mapping[str, Stages]) -> Figure:
    """Draw the stages' shares of the time until a function has run twice, labelled with their times.

    Args:
        rows: What `timing.stages` returns, by name.
    """
    seconds = {name: {stage: getattr(row, stage) for stage in _STAGES} for name, row in rows.items()}
    totals = np.array([sum(row.values()) for row in seconds.values()])
    figure, axes = plt.subplots(figsize=(6.4, 1.4 + 0.9 * len(rows)), dpi=90)
    left = np.zeros(len(rows))
    for stage, (colour, hatch) in _STAGES.items():
        shares = np.array([row[stage] for row in seconds.values()]) / totals
        label = {"first": "first run", "run": "another run"}.get(stage, stage)
        axes.barh(range(len(rows)), shares, 0.42, left=left, color=colour, hatch=hatch, ec="black", lw=0.8, label=label)
        left += shares
    for y, row in enumerate(seconds.values()):
        labels = [f"{stage} {duration(value)}" for stage, value in row.items()]
        lines = ",  ".join(labels[:3]), ",  ".join(labels[3:])
        axes.text(0.004, y + 0.27, ",\n".join(lines), fontsize=_SMALL, va="top")
    axes.set(yticks=range(len(rows)), yticklabels=list(rows), xlim=(0, 1), ylim=(len(rows) - 0.2, -0.5))
    axes.set_xlabel("share of the time until it has run twice")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=_SMALL)
    figure.tight_layout()
    bars = [
        f"{name}: {listing((stage, duration(value)) for stage, value in row.items())}" for name, row in seconds.items()
    ]
    return set_alt_text(figure, f"Stacked bars of the time until a function has run twice. {'; '.join(bars)}.")
