"""Figures of training: learning curves, step times, gradient norms before and after clipping, fake quantisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mlhood.errors import XlaError
from mlhood.jaxlab.tracing.primitive import HIGH, LOW, decomposed, fake_quantize
from mlhood.jaxlab.training.train_loop import History
from mlhood.measure import Comparison
from mlhood.measure.units import duration
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION

_COLOURS = (SKY, VERMILION, BLUE, GREEN, ORANGE, PINK)
_DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("s", "^", "o", "D", "v", "P")
_HATCHES = ("", "//", "..", "xx", "\\\\", "oo")
_LINE_WIDTH = 1.8  # points; covered lines are wider, so that all remain visible
_NEAR = 3.4  # steps on each side of 0 in the close-up of the staircase
_FAR = 1.35  # multiple of int8's limits in the full view
_SMOOTHED = 100  # steps from which on a loss curve is smoothed


def learning_curve(runs: Mapping[str, History]) -> Figure:
    """Draw loss and held-out accuracy of several runs over the steps; coinciding lines have different widths.

    The losses of a run of 100 steps or more are smoothed by a moving average, with the raw losses in a lighter line.

    Args:
        runs: Histories by name.

    Raises:
        XlaError: There is nothing to draw.
    """
    if not runs:
        raise XlaError("there are no runs to draw", expected="one or more, by name", got=dict(runs))
    figure, (above, below) = plt.subplots(2, 1, figsize=(8.2, 5.2), dpi=90, sharex=True, layout="constrained")
    for i, (name, history) in enumerate(runs.items()):
        covering = len(runs) - 1 - i
        style: dict[str, Any] = {"color": _COLOURS[i % 6], "ls": _DASHES[i % 6] if i else "-"}
        style["lw"] = _LINE_WIDTH + 2.6 * covering
        _losses(above, history.losses, name, style)
        style |= {"marker": _MARKERS[i % 6], "mec": "black", "mew": 0.6, "ms": 5 + 3.5 * covering}
        below.plot(*zip(*history.accuracies.items(), strict=True), **style)
    above.set(yscale="log", ylabel="loss of a batch")
    below.set(xlabel="step", ylabel="held-out digits right", ylim=(None, 1))
    below.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = [f"{name} {history.accuracies[max(history.accuracies)]:.1%}" for name, history in runs.items()]
    below.text(0.99, 0.06, "at the end: " + ", ".join(ends), transform=below.transAxes, ha="right", fontsize=9)
    for axes in (above, below):
        axes.grid(visible=True, color="#dddddd", lw=0.6)
    if len(runs) > 1:
        above.legend(fontsize=9, handlelength=3)
    curves = [f"{name}: {run.losses[0]:.2g} to {run.losses[-1]:.2g}" for name, run in runs.items() if run.losses]
    return set_alt_text(
        figure,
        f"Learning curves. Loss from the first step to the last: {'; '.join(curves)}.",
        f"Accuracy: {', '.join(ends)}.",
    )


def _losses(axes: Axes, losses: Sequence[float], name: str, style: dict[str, Any]) -> None:
    steps = np.arange(1, len(losses) + 1)
    if len(losses) < _SMOOTHED:
        axes.plot(steps, losses, label=name, **style)
        return
    window = max(3, len(losses) // 20)
    axes.plot(steps, losses, color=style["color"], lw=0.8, alpha=0.4)
    mean = np.convolve(losses, np.full(window, 1 / window), "valid")
    axes.plot(steps[window // 2 :][: len(mean)], mean, label=name, **style)


def step_seconds(measured: Comparison) -> Figure:
    """Draw the time of a step in each mode, with quartiles, and its speed-up over the baseline.

    Args:
        measured: What `train_loop.compare_modes` returns, or another comparison.
    """
    rows = measured.measurements
    figure, axes = plt.subplots(figsize=(8.2, 0.9 + 0.5 * len(rows)), dpi=90, layout="constrained")
    for i, (name, measurement) in enumerate(rows.items()):
        median, (low, high) = measurement.median * 1e3, (quartile * 1e3 for quartile in measurement.quartiles)
        axes.barh(i, median, 0.62, color=_COLOURS[i % 6], hatch=_HATCHES[i % 6], ec="black", lw=0.8)
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

    Raises:
        XlaError: The norms are empty, or their numbers differ.
    """
    before, after = np.asarray(before), np.asarray(after)
    if before.shape != after.shape or before.ndim != 1 or not before.size:
        got = f"{list(before.shape)} and {list(after.shape)}"
        raise XlaError("the norms are not of the same examples", expected="two arrays [N], N at least 1", got=got)
    order = np.argsort(before, kind="stable")
    ranks = np.arange(1, len(order) + 1)
    figure, axes = plt.subplots(figsize=(8.2, 3.4), dpi=90, layout="constrained")
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


def staircase(scale: float = 0.05) -> Figure:
    """Draw fake quantisation near 0 and over int8's range, and below its true and its straight-through derivative.

    Args:
        scale: Size of a step.

    Raises:
        XlaError: The scale is not positive.
    """
    if not scale > 0:
        raise XlaError("invalid scale", where="staircase", expected="a positive number", got=scale)
    figure, axes = plt.subplots(
        2, 2, figsize=(9.4, 5.2), dpi=90, layout="constrained", sharex="col", height_ratios=(2, 1)
    )
    for column, (low, high) in enumerate(((-_NEAR, _NEAR), (_FAR * LOW, _FAR * HIGH))):
        x = np.linspace(low * scale, high * scale, 4001, dtype=np.float32)
        above, below = axes[0, column], axes[1, column]
        above.plot(x, x, color="#888888", lw=1.2, ls="--", label="x")
        above.plot(x, fake_quantize(x, scale), color=BLUE, lw=1.8, label="fake_quantize(x, scale)")
        below.plot(x, _slopes(decomposed, x, scale), color=VERMILION, lw=1.8, ls="--", label="true: 0 but at jumps")
        below.plot(x, _slopes(fake_quantize, x, scale), color=GREEN, lw=1.8, label="straight through")
        below.set(xlabel="x", ylim=(-0.15, 1.25))
        for panel in (above, below):
            panel.grid(visible=True, color="#dddddd", lw=0.6)
    axes[0, 0].set_title(f"near 0: steps of {scale:g}", fontsize=10)
    axes[0, 1].set_title(f"the whole range: from {LOW * scale:g} to {HIGH * scale:g}", fontsize=10)
    axes[0, 0].set_ylabel("value")
    axes[1, 0].set_ylabel("derivative by x")
    axes[0, 0].legend(fontsize=9)
    axes[1, 1].legend(fontsize=8.5, loc="center")
    return set_alt_text(
        figure,
        f"Fake quantisation is a staircase along x with steps of {scale:g}, from {LOW * scale:g} to {HIGH * scale:g}.",
        "Its true derivative is 0 but at jumps; the straight-through one is 1 in this range and 0 outside.",
    )


def _slopes(function: Any, x: np.ndarray, scale: float) -> jax.Array:
    """Return a function's derivative at each x, by JAX."""
    return jax.jit(jax.grad(lambda x: jnp.sum(function(x, scale))))(x)
