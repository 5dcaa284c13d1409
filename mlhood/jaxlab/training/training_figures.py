"""Figures of training: step times, and gradient norms before and after clipping."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mlhood.measure import Comparison
from mlhood.measure.units import duration
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, COLOURS, HATCHES, ORANGE


def step_seconds(measured: Comparison) -> Figure:
    """Draw the time of a step in each mode, with quartiles, and its speed-up over the baseline.

    Args:
        measured: What `train_loop.compare_modes` returns, or another comparison.
    """
    rows = measured.measurements
    figure, axes = plt.subplots(figsize=(6.4, 0.9 + 0.5 * len(rows)), dpi=90, layout="constrained")
    for i, (name, measurement) in enumerate(rows.items()):
        median, (low, high) = measurement.median * 1e3, (quartile * 1e3 for quartile in measurement.quartiles)
        axes.barh(i, median, 0.62, color=COLOURS[i % 6], hatch=HATCHES[i % 6], ec="black", lw=0.8)
        interval = [[median - low], [high - median]]
        axes.errorbar(median, i, xerr=interval, fmt="none", ecolor="white", capsize=5, capthick=3.5, lw=3.5)
        axes.errorbar(median, i, xerr=interval, fmt="none", ecolor="#222222", capsize=4, lw=1.2)
        text = duration(measurement.median)
        if name != measured.baseline:
            text += f",  {measured.speedup(name)} times as fast as {measured.baseline}"
        end = (max(high, median), i)
        axes.annotate(text, end, (6, 0), va="center", textcoords="offset points", fontsize=9)
    longest = max(measurement.quartiles[1] for measurement in rows.values()) * 1e3
    axes.set(yticks=range(len(rows)), yticklabels=list(rows), xlabel="milliseconds a step", xlim=(0, 1.25 * longest))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    bars = listing((name, duration(measurement.median)) for name, measurement in rows.items())
    return set_alt_text(figure, f"Bar chart of the time of a step: {bars}.")


def gradient_norms(before: Any, after: Any, limit: float) -> Figure:
    """Draw the norm of each example's gradient before and after clipping, in ascending order.

    Args:
        before: Norms [N].
        after: Norms [N] of the same examples.
        limit: The clipping limit.
    """
    before, after = np.asarray(before), np.asarray(after)
    order = np.argsort(before, kind="stable")
    ranks = np.arange(1, len(order) + 1)
    figure, axes = plt.subplots(figsize=(6.4, 3.4), dpi=90, layout="constrained")
    axes.vlines(ranks, after[order], before[order], color="#aaaaaa", lw=1)
    axes.plot(ranks, before[order], "o", color=ORANGE, mec="black", mew=0.6, ms=6.5, label="before")
    axes.plot(ranks, after[order], "v", color=BLUE, mec="black", mew=0.6, ms=4.5, label="after")
    axes.axhline(limit, color="#222222", lw=1.4, ls="--", label=f"limit {limit:.3g}")
    axes.set(xlabel="example, by the norm of its gradient", ylabel="norm of the gradient")
    if min(before.min(), after.min()) > 0:
        axes.set_yscale("log")  # norms of confidently classified examples are thousands of times smaller
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.set_title(f"{np.count_nonzero(before > limit)} of {len(order)} are clipped", fontsize=10)
    axes.legend(fontsize=9)
    return set_alt_text(
        figure,
        f"Norms of the gradients of {len(order)} examples, from {before.min():.2g} to {before.max():.2g}.",
        f"{np.count_nonzero(before > limit)} are above the limit {limit:.3g} and clipped to it.",
    )
