"""The picture of a pipeline's schedule: who does what when, who waits, and what each device holds meanwhile."""

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
from mlhood.plotting.diagram import BLUE, GREEN, LIGHT_BLUE, LIGHT_GREY, ORANGE, PINK, VERMILION

MOST_DEVICES, MOST_SLOTS = 16, 3000
# light and plain, darker and hatched: the two stay apart without colour
_LOOKS = {FORWARD: (LIGHT_BLUE, ""), BACKWARD: (ORANGE, "///")}
_LINES = ((BLUE, "-"), (VERMILION, "--"), (GREEN, "-."), (PINK, ":"))
_WIDTH, _ROOM = 9.4, 7.2  # inches: of the picture, and of the longest schedule in it
_CHARACTER = 0.07  # inches that a digit takes in a box


def gantt(schedules: Schedule | Sequence[Schedule], unit: str = "s") -> Figure:
    """Draw schedules on one time axis: a row a device, a box a pass with its microbatch's number; crosses are bubble.

    Below each, of how many forward passes the first and the last device hold activations. Where a device has several
    stages, boxes of all but its first have a thick edge.

    Args:
        schedules: One, or several to compare.
        unit: Of their times.

    Raises:
        ClusterError: There is none, or one is too large to be read.
    """
    shown = [schedules] if isinstance(schedules, Schedule) else list(schedules)
    _check(shown)
    rows = [height for schedule in shown for height in (0.3 * schedule.devices + 0.35, 1.0)]
    figure, grid = plt.subplots(
        2 * len(shown), 1, figsize=(_WIDTH, sum(rows) + 0.55 * len(shown) + 0.8), dpi=90, sharex=True,
        squeeze=False, height_ratios=rows, layout="constrained",
    )  # fmt: skip
    longest = max(schedule.seconds for schedule in shown)
    for schedule, top, below in zip(shown, grid[::2, 0], grid[1::2, 0], strict=True):
        _passes(top, schedule, longest, unit)
        _activations(below, schedule)
    grid[-1, 0].set(xlabel=f"time [{unit}]", xlim=(0, longest * 1.005))
    patches = [Patch(fc=colour, hatch=hatch, ec="black", label=kind) for kind, (colour, hatch) in _LOOKS.items()]
    patches.append(Patch(fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa", label="bubble: nothing to do"))
    figure.legend(handles=patches, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    return figure


def _check(schedules: Sequence[Schedule]) -> None:
    if not schedules:
        raise ClusterError("there is nothing to draw", expected="one or more schedules", got="none")
    for schedule in schedules:
        if schedule.devices > MOST_DEVICES or len(schedule.slots) > MOST_SLOTS:
            raise ClusterError(
                "this schedule is too large to be drawn", where=schedule.name,
                expected=f"at most {MOST_DEVICES} devices and {MOST_SLOTS:,} slots",
                got=f"{schedule.devices} devices, {len(schedule.slots):,} slots",
            )  # fmt: skip


def _passes(axes: Axes, schedule: Schedule, longest: float, unit: str) -> None:
    room = Rectangle((0, -0.42), schedule.seconds, schedule.devices - 0.16, fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa")
    axes.add_patch(room)
    for slot in schedule.slots:
        _box(axes, slot, schedule.devices, longest)
    names = "device" if schedule.stages > schedule.devices else "stage"
    axes.set(yticks=range(schedule.devices), yticklabels=[f"{names} {i}" for i in range(schedule.devices)])
    axes.set_ylim(schedule.devices - 0.5, -0.5)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    words = f"{schedule.name}: {digits(schedule.seconds)} {unit} long, bubble {schedule.bubble:.1%}"
    axes.set_title(words, fontsize=10, loc="left", weight="bold")


def _box(axes: Axes, slot: Slot, devices: int, longest: float) -> None:
    colour, hatch = _LOOKS[slot.kind]
    row = slot.stage % devices
    thick = 1.9 if slot.stage >= devices else 0.7
    axes.add_patch(Rectangle((slot.start, row - 0.42), slot.seconds, 0.84, fc=colour, hatch=hatch, ec="#8a5a00", lw=0))
    axes.add_patch(Rectangle((slot.start, row - 0.42), slot.seconds, 0.84, fill=False, ec="black", lw=thick))
    text = str(slot.microbatch)
    if slot.seconds / longest * _ROOM >= _CHARACTER * (len(text) + 0.3):
        label = axes.text(slot.start + slot.seconds / 2, row, text, ha="center", va="center", fontsize=8.5)
        if hatch:
            label.set_bbox({"fc": colour, "ec": "none", "pad": 0.8})


def _activations(axes: Axes, schedule: Schedule) -> None:
    devices = dict.fromkeys((0, schedule.devices - 1))
    peaks = [schedule.peak(device) for device in range(schedule.devices)]
    for device, (colour, dashes) in zip(devices, _LINES, strict=False):
        times, counts = zip(*schedule.held(device), strict=True)
        label = f"{'first' if device == 0 else 'last'}: at most {peaks[device]}"
        axes.step([0, *times, schedule.seconds], [0, *counts, counts[-1]], where="post", color=colour, ls=dashes,
                  lw=1.8, label=label)  # fmt: skip
    axes.set(ylabel="held", ylim=(0, 1.1 * max(peaks) + 0.3))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelbottom=True, labelsize=9)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1.1), fontsize=8.5, frameon=False, title="activations of\npasses",
                title_fontsize=8.5, alignment="left", handlelength=1.6)  # fmt: skip
