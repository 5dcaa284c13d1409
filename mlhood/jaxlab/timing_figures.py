"""Pictures of what P5 measures: how much faster JAX is, what comes before the first result, and when that pays."""

from __future__ import annotations

import math
from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mlhood.errors import XlaError
from mlhood.jaxlab import timing
from mlhood.jaxlab.tables import JAX, NO_JAX
from mlhood.jaxlab.timing import Stages
from mlhood.measure.claims import ratio
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table
from mlhood.measure.units import digits, duration, times
from mlhood.plotting.diagram import BLUE, GREEN, LIGHT_GREY, ORANGE, PINK, SKY, VERMILION

_DARK, _SMALL = "#222222", 9.0
_FACTORS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_PARTS = {  # colours that differ in lightness too, and hatches for where there are none
    "trace": (SKY, ""),
    "lower": (ORANGE, "//"),
    "compile": (LIGHT_GREY, ""),
    "first": (GREEN, ".."),
    "run": (PINK, "xx"),
}


def ratios(table: Table) -> Figure:
    """Draw how many times as long each row takes without JAX, with its interval: right of the line JAX is faster.

    Args:
        table: `operators_table`, filled; rows that are not are left out.

    Raises:
        XlaError: No row is filled.
    """
    found = {
        row: ratio(table[row, NO_JAX], table[row, JAX])
        for row in table.rows
        if (row, NO_JAX) in table and (row, JAX) in table
    }
    _check(found, "rows of the table that are filled")
    figure, axes = plt.subplots(figsize=(8.6, 1.3 + 0.42 * len(found)), dpi=90, layout="constrained")
    for y, one in enumerate(found.values()):
        _bar(axes, y, one)
    ends = [end for one in found.values() for end in (one.low, one.high, 1.0)]
    low, high = min(ends) / 1.6, max(ends) * 1.6
    axes.set(xscale="log", yticks=range(len(found)), yticklabels=list(found), ylim=(len(found) - 0.4, -0.6))
    axes.set(xlabel=f"time of {NO_JAX} / time of {JAX}: right of the line JAX is faster")
    # room for what is said beside the longest bars
    axes.set_xlim(low * (low / high) ** 0.2, high * (high / low) ** 0.2)
    axes.set_xticks([tick for tick in _FACTORS if low <= tick <= high], minor=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.axvline(1, color=_DARK, lw=1.6)
    return figure


def _bar(axes: Axes, y: int, one: Ratio) -> None:
    faster = one.value > 1
    colour, hatch = (SKY, "") if faster else (ORANGE, "//")
    axes.barh(y, one.value - 1, 0.6, left=1, color=colour, hatch=hatch, ec="black", lw=0.8)
    around = [[one.value - one.low], [one.high - one.value]]
    axes.errorbar(one.value, y, xerr=around, fmt="none", ecolor="white", capsize=4, capthick=3.5, lw=3.5)
    axes.errorbar(one.value, y, xerr=around, fmt="none", ecolor=_DARK, capsize=3, lw=1.2)
    place, shift, side = (one.high, 6, "left") if faster else (one.low, -6, "right")
    axes.annotate(times(one.value), (place, y), (shift, 0), textcoords="offset points", ha=side, va="center",
                  fontsize=_SMALL)  # fmt: skip


def stages(rows: Mapping[str, Stages]) -> Figure:
    """Draw where the time goes until a function has run twice, as shares, and say each part's time beside it.

    Args:
        rows: By name, what `timing.stages` gives.

    Raises:
        XlaError: Nothing to draw, or what takes no time at all.
    """
    _check(rows, "functions")
    figure, axes = plt.subplots(figsize=(8.8, 1.2 + 0.72 * len(rows)), dpi=90)
    left = np.zeros(len(rows))
    totals = np.array([_total(name, one) for name, one in rows.items()])
    for part, (colour, hatch) in _PARTS.items():
        shares = np.array([one.as_dict()[part] for one in rows.values()]) / totals
        label = {"first": "first run", "run": "another run"}.get(part, part)
        axes.barh(range(len(rows)), shares, 0.42, left=left, color=colour, hatch=hatch, ec="black", lw=0.8, label=label)
        left += shares
    for y, one in enumerate(rows.values()):
        told = ",  ".join(f"{part} {duration(seconds)}" for part, seconds in one.as_dict().items() if part in _PARTS)
        axes.text(0.004, y + 0.38, told, fontsize=_SMALL, va="center")
    axes.set(yticks=range(len(rows)), yticklabels=list(rows), xlim=(0, 1), ylim=(len(rows) - 0.3, -0.5))
    axes.set_xlabel("share of the time until it has run twice")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(_PARTS), frameon=False, fontsize=_SMALL)
    figure.tight_layout()
    return figure


def _total(name: str, one: Stages) -> float:
    total = sum(one.as_dict()[part] for part in _PARTS)
    _positive(f"time of {name}", total)
    return total


def break_even(compile_seconds: float, no_jax: float, jax: float, name: str = "") -> Figure:
    """Draw the time of all calls so far over their number, without JAX and with it, and mark from where JAX pays.

    Args:
        compile_seconds: Before the first call with JAX.
        no_jax: Seconds of a call without.
        jax: Seconds of a compiled call.
        name: Of what is called; above the picture.

    Raises:
        XlaError: These are no times.
    """
    for what, seconds in (("compiling", compile_seconds), (f"a call, {NO_JAX}", no_jax), (f"a call, {JAX}", jax)):
        _positive(f"time of {what}", seconds)
    crossing = timing.break_even(compile_seconds, no_jax, jax)
    last = 10 * crossing if math.isfinite(crossing) else 10 * compile_seconds / jax
    calls = np.geomspace(1, max(last, 100), 200)
    figure, axes = plt.subplots(figsize=(7.6, 4.2), dpi=90, layout="constrained")
    axes.loglog(calls, calls * no_jax, color=VERMILION, lw=2, ls="--", label=f"{NO_JAX}: {duration(no_jax)} a call")
    label = f"{JAX}: {duration(compile_seconds)} before, {duration(jax)} a call"
    axes.loglog(calls, compile_seconds + calls * jax, color=BLUE, lw=2, label=label)
    told = "it never does: a call takes no less time"
    if math.isfinite(crossing):
        axes.axvline(crossing, color=_DARK, lw=1, ls=":")
        axes.plot(crossing, compile_seconds + crossing * jax, "o", color=ORANGE, mec="black", ms=9, zorder=5)
        told = f"from {_counted(crossing)} calls on" if crossing > 1 else "from the first call on"
    axes.set(xlabel=f"calls; JAX takes less time in all: {told}", title=name)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    axes.legend(loc="lower right", fontsize=_SMALL)
    return figure


def _counted(calls: float) -> str:
    return f"{calls:,.0f}" if calls < 10_000 else digits(calls)


def _check(given: Mapping, what: str) -> None:
    if not given:
        raise XlaError("there is nothing to draw", expected=f"one or more {what}", got="none")


def _positive(what: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise XlaError(f"this {what} cannot be drawn", expected="a finite number of seconds above 0", got=repr(value))
