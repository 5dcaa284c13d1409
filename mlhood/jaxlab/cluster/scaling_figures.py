"""The figure of a prediction: the time of a step on increasing numbers of devices, with the link's rate and latency."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from mlhood.jaxlab.cluster.scaling import Prediction
from mlhood.measure.units import duration
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, VERMILION

HALF = 0.5
_COLUMN, _MIN_WIDTH = 3.3, 6.4  # inches: of one of several columns, and of the figure
_CHARACTERS = 12.7  # per inch, in the small font


def scaling(predictions: Sequence[Prediction]) -> Figure:
    """Draw predictions side by side on the same axes: a step's time and its parts above, the efficiency below.

    Devices and time are logarithmic. A diamond marks the largest number of devices with an efficiency of at least a
    half. A note states the link's rate and latency, with their sources.

    Args:
        predictions: Up to four.
    """
    titles = [f"ring, {prediction.network.link.name}" for prediction in predictions]
    width = max(_COLUMN, _MIN_WIDTH / len(predictions))
    notes = [textwrap.wrap(str(prediction.network.link), int(_CHARACTERS * width)) for prediction in predictions]
    below = 0.155 * max(len(note) for note in notes) + 0.2
    figure, grid = plt.subplots(
        3,
        len(predictions),
        figsize=(width * len(predictions), 4.9 + below),
        dpi=90,
        squeeze=False,
        sharex="row",
        sharey="row",
        height_ratios=(3, 1.4, below),
        layout="constrained",
    )
    for prediction, title, note, (top, middle, bottom) in zip(predictions, titles, notes, grid.T, strict=True):
        _times(top, prediction)
        _efficiency(middle, prediction)
        top.set_title(title, fontsize=10, weight="bold")
        bottom.axis("off")
        bottom.text(0, 1, "\n".join(note), transform=bottom.transAxes, va="top", fontsize=8.5)
    grid[0, 0].set_ylabel("predicted time [s]")
    grid[1, 0].set_ylabel("efficiency")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False, handlelength=3)
    lines = [f"{title}: {_summary(prediction)}" for title, prediction in zip(titles, predictions, strict=True)]
    return set_alt_text(figure, f"Predicted time of a step by number of devices. {'; '.join(lines)}.")


def _summary(prediction: Prediction) -> str:
    first, last = prediction.steps[0], prediction.steps[-1]
    fastest = min(prediction.steps, key=lambda step: step.seconds)
    times = listing((f"{duration(step.seconds)} on", f"{step.devices:,}") for step in (first, fastest, last))
    efficient = [step.devices for step in prediction.steps if step.efficiency >= HALF]
    return f"{times}; efficiency at least a half " + (f"up to {max(efficient):,}" if efficient else "nowhere")


def _times(axes: Axes, prediction: Prediction) -> None:
    steps = prediction.steps
    devices = [step.devices for step in steps]
    # a logarithmic axis has no zero
    sent = [(step.devices, step.communication) for step in steps if step.communication > 0]
    axes.plot(devices, [step.compute for step in steps], color=BLUE, ls="--", lw=1.6, label="computation")
    style = {"color": VERMILION, "ls": "-.", "lw": 1.6, "label": "communication"}
    axes.plot([x for x, _ in sent], [y for _, y in sent], **style)
    axes.plot(devices, [step.seconds for step in steps], color="black", marker="o", ms=4.5, lw=2.2, label="step")
    axes.set(xscale="log", yscale="log")
    axes.margins(y=0.18)
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    last = steps[-1]
    text, box = f"{duration(last.seconds)} on {last.devices:,}", {"fc": "white", "ec": "none", "pad": 0.8}
    end = (last.devices, last.seconds)
    axes.annotate(text, end, (-2, 8), textcoords="offset points", ha="right", fontsize=9, bbox=box)
    _device_axis(axes, devices)


def _efficiency(axes: Axes, prediction: Prediction) -> None:
    devices = [step.devices for step in prediction.steps]
    axes.plot(devices, [step.efficiency for step in prediction.steps], color="black", marker="o", ms=4.5, lw=2.2)
    axes.axhline(HALF, color="#888888", lw=1, ls=":")
    efficient = [step for step in prediction.steps if step.efficiency >= HALF]
    text = "below 50 % everywhere"
    if efficient:
        last = efficient[-1]
        axes.plot([last.devices], [last.efficiency], "D", color=VERMILION, mec="black", ms=9, zorder=4)
        text = f"at least 50 % up to\n{last.devices:,} device{'s' if last.devices > 1 else ''}"
    axes.text(0.04, 0.08, text, transform=axes.transAxes, fontsize=9)
    axes.set(xscale="log", ylim=(0, 1.08), xlabel="devices")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.grid(visible=True, color="#dddddd", lw=0.6)
    _device_axis(axes, devices)


def _device_axis(axes: Axes, devices: Sequence[int]) -> None:
    ticks = [n for n in (1, 4, 16, 64, 256, 1024) if devices[0] <= n <= devices[-1]] or [devices[0]]
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
