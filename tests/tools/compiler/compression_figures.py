"""Figure of `mlhood bench compression`: accuracy by cost, and the networks that are Pareto-optimal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from mlhood.errors import CompilerError
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, ORANGE, SKY, VERMILION
from tests.tools.compiler.compression import (
    COSTS,
    DENSE,
    DISTILLED,
    MAGNITUDE,
    SCRATCH,
    STRUCTURED,
    Row,
    frontier,
)

_STYLES = {
    DENSE: ("black", "*"),
    MAGNITUDE: (ORANGE, "^"),
    STRUCTURED: (BLUE, "o"),
    DISTILLED: (VERMILION, "s"),
    SCRATCH: (SKY, "D"),
}
_LABELS = {DENSE: "dense", MAGNITUDE: "magnitude pruning", STRUCTURED: "structured pruning", DISTILLED: "distillation"}


def pareto(rows: Sequence[Row]) -> Figure:
    """Draw the accuracy of networks by their costs, with a line through those that are Pareto-optimal.

    Args:
        rows: The dense network first. Where the time on the CPU was not measured, its panel is left out.

    Raises:
        CompilerError: There are no rows.
    """
    if not rows:
        raise CompilerError("there is nothing to draw", expected="one or more networks", got="none")
    costs = [cost for cost in COSTS if not any(math.isnan(getattr(row, cost)) for row in rows)]
    figure, panels = plt.subplots(
        1, len(costs), figsize=(3.9 * len(costs), 4.4), dpi=90, layout="constrained", sharey=True, squeeze=False
    )
    for axes, cost in zip(panels[0], costs, strict=True):
        _panel(axes, rows, cost)
    panels[0][0].set_ylabel("accuracy of the int8 network on unseen digits")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    best = {cost: listing((row.name, f"{row.accuracy:.1%}") for row in frontier(rows, cost)) for cost in costs}
    return set_alt_text(
        figure,
        f"Accuracy by {', by '.join(COSTS[cost] for cost in costs)}; the dense network has {rows[0].accuracy:.1%}.",
        *(f"Pareto-optimal by {COSTS[cost]}: {names}." for cost, names in best.items()),
    )


def _panel(axes: Axes, rows: Sequence[Row], cost: str) -> None:
    best = frontier(rows, cost)
    line = [(getattr(row, cost), row.accuracy) for row in best]
    axes.plot(*zip(*line, strict=True), color="#555555", ls="--", lw=1, zorder=1, label="Pareto-optimal")
    for method, (colour, marker) in _STYLES.items():
        own = [row for row in rows if row.method == method]
        if not own:
            continue
        x, y = [getattr(row, cost) for row in own], [row.accuracy for row in own]
        # a mean of equal numbers may be rounded to one that is not between them
        below = [max(0.0, row.accuracy - min(row.accuracies)) for row in own]
        above = [max(0.0, max(row.accuracies) - row.accuracy) for row in own]
        size = 13 if method == DENSE else 7
        style = {"color": colour, "marker": marker, "markersize": size, "markeredgecolor": "black", "mew": 0.6}
        label = _LABELS.get(method, method)
        axes.errorbar(x, y, yerr=[below, above], ls="none", elinewidth=0.8, capsize=2, label=label, **style)
        if method == STRUCTURED:
            for row, at in zip(own, zip(x, y, strict=True), strict=True):
                axes.annotate(f"{100 * row.level:g} %", at, (7, 4), textcoords="offset points", fontsize=8, zorder=5)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    if high < 10 * low:  # less than a decade has no ticks of its own
        axes.set_xticks([each for each in (0.1, 0.2, 0.3, 0.5, 1, 2, 5) if low <= each <= high])
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    axes.set_xlabel(COSTS[cost])
    axes.grid(alpha=0.3)
