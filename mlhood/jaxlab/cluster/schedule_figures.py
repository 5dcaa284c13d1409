"""The figure of a pipeline's schedule: a Gantt chart of the passes, and the activations that the devices store."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.schedule import BACKWARD, FORWARD, Schedule, Slot
from mlhood.measure.units import digits
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import BLUE, GREEN, LIGHT_BLUE, LIGHT_GREY, ORANGE, PINK, VERMILION

MAX_DEVICES, MAX_SLOTS = 16, 3000
# light and plain, darker and hatched: distinguishable without colour
_STYLES = {FORWARD: (LIGHT_BLUE, ""), BACKWARD: (ORANGE, "///")}
_LINES = ((BLUE, "-"), (VERMILION, "--"), (GREEN, "-."), (PINK, ":"))
_WIDTH, _CHART_WIDTH = 9.4, 7.2  # inches: of the figure, and of the longest schedule in it
_CHARACTER = 0.07  # inches per digit in a box


def gantt(schedules: Schedule | Sequence[Schedule], unit: str = "s") -> Figure:
    """Draw schedules on one time axis: a row per device, a box per pass with its microbatch; the bubble is hatched.

    Below each, the number of passes whose activations the first and the last device store. If a device has several
    stages, boxes of all but its first have a thick edge.

    Args:
        schedules: One, or several to compare.
        unit: Unit of their times.

    Raises:
        ClusterError: There is no schedule, or one is too large to be readable.
    """
    shown = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    _check(shown)
    rows = [height for schedule in shown for height in (0.3 * schedule.devices + 0.35, 1.0)]
    size = _WIDTH, sum(rows) + 0.55 * len(shown) + 0.8
    figure, grid = plt.subplots(
        len(rows), 1, figsize=size, dpi=90, sharex=True, squeeze=False, height_ratios=rows, layout="constrained"
    )
    longest = max(schedule.seconds for schedule in shown)
    for schedule, top, below in zip(shown, grid[::2, 0], grid[1::2, 0], strict=True):
        _passes(top, schedule, longest, unit)
        _activations(below, schedule)
    grid[-1, 0].set(xlabel=f"time [{unit}]", xlim=(0, longest * 1.005))
    patches = [Patch(fc=colour, hatch=hatch, ec="black", label=kind) for kind, (colour, hatch) in _STYLES.items()]
    patches.append(Patch(fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa", label="bubble: nothing to do"))
    figure.legend(handles=patches, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    charts = [
        f"{schedule.name}: {digits(schedule.seconds)} {unit} long, bubble {schedule.bubble:.1%}, "
        f"at most {schedule.peak(0)} activations on the first device"
        for schedule in shown
    ]
    pipeline = f"{shown[0].microbatches} microbatches through {shown[0].stages} stages"
    return set_alt_text(figure, f"Gantt charts of {pipeline}. {'; '.join(charts)}.")


def _check(schedules: Sequence[Schedule]) -> None:
    if not schedules:
        raise ClusterError("there is nothing to draw", expected="one or more schedules", got="none")
    for schedule in schedules:
        if schedule.devices > MAX_DEVICES or len(schedule.slots) > MAX_SLOTS:
            raise ClusterError(
                "the schedule is too large to be drawn",
                where=schedule.name,
                expected=f"at most {MAX_DEVICES} devices and {MAX_SLOTS:,} slots",
                got=f"{schedule.devices} devices, {len(schedule.slots):,} slots",
            )


def _passes(axes: Axes, schedule: Schedule, longest: float, unit: str) -> None:
    bubble = Rectangle((0, -0.42), schedule.seconds, schedule.devices - 0.16, fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa")
    axes.add_patch(bubble)
    for slot in schedule.slots:
        _box(axes, slot, schedule.devices, longest)
    row = "device" if schedule.stages > schedule.devices else "stage"
    axes.set(yticks=range(schedule.devices), yticklabels=[f"{row} {i}" for i in range(schedule.devices)])
    axes.set_ylim(schedule.devices - 0.5, -0.5)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    title = f"{schedule.name}: {digits(schedule.seconds)} {unit} long, bubble {schedule.bubble:.1%}"
    axes.set_title(title, fontsize=10, loc="left", weight="bold")


def _box(axes: Axes, slot: Slot, devices: int, longest: float) -> None:
    colour, hatch = _STYLES[slot.kind]
    row = slot.stage % devices
    line_width = 1.9 if slot.stage >= devices else 0.7
    axes.add_patch(Rectangle((slot.start, row - 0.42), slot.seconds, 0.84, fc=colour, hatch=hatch, ec="#8a5a00", lw=0))
    axes.add_patch(Rectangle((slot.start, row - 0.42), slot.seconds, 0.84, fill=False, ec="black", lw=line_width))
    text = str(slot.microbatch)
    if slot.seconds / longest * _CHART_WIDTH >= _CHARACTER * (len(text) + 0.3):
        label = axes.text(slot.start + slot.seconds / 2, row, text, ha="center", va="center", fontsize=8.5)
        if hatch:
            label.set_bbox({"fc": colour, "ec": "none", "pad": 0.8})


def _activations(axes: Axes, schedule: Schedule) -> None:
    devices = dict.fromkeys((0, schedule.devices - 1))
    peaks = [schedule.peak(device) for device in range(schedule.devices)]
    for device, (colour, dashes) in zip(devices, _LINES, strict=False):
        times, counts = zip(*schedule.stored_activations(device), strict=True)
        label = f"{'first' if device == 0 else 'last'}: at most {peaks[device]}"
        x, y = [0, *times, schedule.seconds], [0, *counts, counts[-1]]
        axes.step(x, y, where="post", color=colour, ls=dashes, lw=1.8, label=label)
    axes.set(ylabel="held", ylim=(0, 1.1 * max(peaks) + 0.3))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelbottom=True, labelsize=9)
    style = {"fontsize": 8.5, "title_fontsize": 8.5, "alignment": "left", "handlelength": 1.6, "frameon": False}
    axes.legend(title="activations of\npasses", loc="upper left", bbox_to_anchor=(1, 1.1), **style)
