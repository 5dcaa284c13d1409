"""Figures of training: step times, and the examples with the largest gradients."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from mlhood.measure import Comparison
from mlhood.measure.units import duration
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, COLOURS, DARK, HATCHES, VERMILION


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


def largest_gradients(images: Any, labels: Any, norms: Any, false: Any, title: str, count: int = 8) -> Figure:
    """Draw the norms of all examples' gradients, and the images of the largest with label and norm.

    Args:
        images: [N, 1, H, W].
        labels: [N].
        norms: Norms [N] of the gradients.
        false: Indices of the examples whose labels are false; they are marked.
        title: Of the figure.
        count: Number of images.
    """
    images, norms = np.asarray(images), np.asarray(norms)
    order = np.argsort(-norms, kind="stable")
    figure = plt.figure(figsize=(6.8, 3.4), dpi=90, layout="constrained")
    grid = figure.add_gridspec(2, count, height_ratios=(1.5, 1))
    axes = figure.add_subplot(grid[0, :])
    marked = np.isin(order, false)
    ranks = np.arange(1, len(order) + 1)
    for picked, colour, marker, label in ((~marked, BLUE, ".", "right label"), (marked, VERMILION, "D", "false label")):
        axes.plot(ranks[picked], norms[order][picked], marker, color=colour, label=label)
    axes.set(title=title, xlabel="example, by the norm of its gradient", ylabel="norm")
    axes.legend(fontsize=9)
    for rank, example in enumerate(order[:count]):
        panel = figure.add_subplot(grid[1, rank])
        panel.imshow(images[example, 0], cmap="gray_r")
        panel.set(xticks=[], yticks=[], xlabel=f"{norms[example]:.3g}")
        colour = VERMILION if marked[rank] else DARK
        panel.set_title(f"“{labels[example]}”", fontsize=9.5, color=colour, weight="bold" if marked[rank] else None)
        panel.spines[:].set(color=colour, linewidth=2.5 if marked[rank] else 0.8)
    largest = [f"{labels[i]} ({'false' if i in false else 'right'}, norm {norms[i]:.3g})" for i in order[:count]]
    return set_alt_text(
        figure,
        f"{title}: norms of the gradients of {len(norms)} examples, and the images of the largest.",
        f"Their labels: {', '.join(largest)}.",
    )
