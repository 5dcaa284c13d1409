"""The picture of a prediction: what a step takes on more and more devices, with all that was assumed written in."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.scaling import Prediction
from mlhood.measure.units import duration
from mlhood.plotting.diagram import BLUE, PINK, VERMILION

MOST = 4  # columns that can be read
HALF = 0.5
_COLUMN, _LEAST = 4.4, 6.6  # inches: of one among several, and of one alone
_CHARACTERS = 12.7  # of the small font that stand on an inch


def scaling(predictions: Prediction | Sequence[Prediction], titles: Sequence[str] = ()) -> Figure:
    """Draw predictions side by side on the same axes: a step's time and its parts above, the efficiency below.

    Devices and time are logarithmic. Where communication runs beside computation, dots are the part that does not. A
    diamond marks the most devices that are used at least by half. Under each column stands what it rests on.

    Args:
        predictions: One, or up to four.
        titles: One for each; the name of its algorithm and first link if left out.

    Raises:
        ClusterError: There is nothing to draw or too much, or there are more or fewer titles.
    """
    shown = [predictions] if isinstance(predictions, Prediction) else list(predictions)
    titles = list(titles) or [f"{one.network.name}, {one.network.links[-1].name}" for one in shown]
    if not 1 <= len(shown) <= MOST or len(titles) != len(shown):
        raise ClusterError("this cannot be drawn", expected=f"1 to {MOST} predictions, and a title for each or none",
                           got=f"{len(shown)} predictions, {len(titles)} titles")  # fmt: skip
    width = max(_COLUMN, _LEAST / len(shown))
    notes = [_notes(one, int(_CHARACTERS * width)) for one in shown]
    below = 0.155 * max(len(note) for note in notes) + 0.2
    figure, grid = plt.subplots(
        3, len(shown), figsize=(width * len(shown), 4.9 + below), dpi=90, squeeze=False,
        sharex="row", sharey="row", height_ratios=(3, 1.4, below), layout="constrained",
    )  # fmt: skip
    for prediction, title, note, (top, middle, bottom) in zip(shown, titles, notes, grid.T, strict=True):
        _times(top, prediction)
        _efficiency(middle, prediction)
        top.set_title("\n".join(textwrap.wrap(title, 42)), fontsize=10, weight="bold")
        bottom.axis("off")
        bottom.text(0, 1, "\n".join(note), transform=bottom.transAxes, va="top", fontsize=8.5)
    grid[0, 0].set_ylabel("time [s]")
    grid[1, 0].set_ylabel("efficiency")
    handles = {text: line for axes in grid[0] for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=9, frameon=False, handlelength=3
    )
    return figure


def _notes(prediction: Prediction, width: int) -> list[str]:
    lines = ["predicted, not measured; assumed:", *prediction.assumptions]
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="   ")]


def _times(axes: Axes, prediction: Prediction) -> None:
    steps = prediction.steps
    devices = [step.devices for step in steps]
    told = [step for step in steps if step.communication > 0]  # a logarithmic axis has no zero
    apart = [step for step in told if step.exposed > 0]
    axes.plot(devices, [step.compute for step in steps], color=BLUE, ls="--", lw=1.6, label="computation")
    axes.plot([step.devices for step in told], [step.communication for step in told], color=VERMILION, ls="-.", lw=1.6,
              label="communication")  # fmt: skip
    if prediction.overlap:
        axes.plot([step.devices for step in apart], [step.exposed for step in apart], color=PINK, ls=":", lw=2,
                  label="not hidden")  # fmt: skip
    axes.plot(devices, [step.seconds for step in steps], color="black", marker="o", ms=4.5, lw=2.2, label="step")
    axes.set(xscale="log", yscale="log")
    axes.margins(y=0.18)
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    last = steps[-1]
    words = f"{duration(last.seconds)} on {last.devices:,}"
    axes.annotate(words, (last.devices, last.seconds), (-2, 8), textcoords="offset points", ha="right", fontsize=9,
                  bbox={"fc": "white", "ec": "none", "pad": 0.8})  # fmt: skip
    _device_axis(axes, devices)


def _efficiency(axes: Axes, prediction: Prediction) -> None:
    devices = [step.devices for step in prediction.steps]
    axes.plot(devices, [step.efficiency for step in prediction.steps], color="black", marker="o", ms=4.5, lw=2.2)
    axes.axhline(HALF, color="#888888", lw=1, ls=":")
    reached = [step for step in prediction.steps if step.efficiency >= HALF]
    words = "below a half everywhere"
    if reached:
        last = reached[-1]
        axes.plot([last.devices], [last.efficiency], "D", color=VERMILION, mec="black", ms=9, zorder=4)
        words = f"half or more up to {last.devices:,} device{'s' if last.devices > 1 else ''}"
    axes.set_title(words, fontsize=9)
    axes.set(xscale="log", ylim=(0, 1.08), xlabel="devices")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    _device_axis(axes, devices)


def _device_axis(axes: Axes, devices: Sequence[int]) -> None:
    ticks = [n for n in (1, 4, 16, 64, 256, 1024) if devices[0] <= n <= devices[-1]] or [devices[0]]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
