"""The figure of a pipeline's schedule: a Gantt chart of the passes, and the activations that the devices store."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from mlhood.jaxlab.cluster.schedule import BACKWARD, FORWARD, Schedule, Slot
from mlhood.measure.units import digits
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import BLUE, LIGHT_BLUE, LIGHT_GREY, ORANGE, VERMILION

# light and plain, darker and hatched: distinguishable without colour
_STYLES = {FORWARD: (LIGHT_BLUE, ""), BACKWARD: (ORANGE, "///")}
_WIDTH, _CHART_WIDTH = 6.8, 4.7  # inches: of the figure, and of the longest schedule in it
_CHARACTER = 0.07  # inches per digit in a box


def gantt(schedules: Sequence[Schedule], unit: str) -> Figure:
    """Draw schedules on one time axis: a row per stage, a box per pass with its microbatch; the bubble is hatched.

    Below each, the number of passes whose activations the first and the last stage store.

    Args:
        schedules: One or more schedules of the same stages and microbatches.
        unit: Unit of their times.
    """
    rows = [height for schedule in schedules for height in (0.3 * schedule.stages + 0.35, 1.0)]
    size = _WIDTH, sum(rows) + 0.55 * len(schedules) + 0.8
    figure, grid = plt.subplots(
        len(rows), 1, figsize=size, dpi=90, sharex=True, squeeze=False, height_ratios=rows, layout="constrained"
    )
    longest = max(schedule.length for schedule in schedules)
    for schedule, top, below in zip(schedules, grid[::2, 0], grid[1::2, 0], strict=True):
        _passes(top, schedule, longest, unit)
        _activations(below, schedule)
    grid[-1, 0].set(xlabel=f"time [{unit}]", xlim=(0, longest * 1.005))
    patches = [Patch(fc=colour, hatch=hatch, ec="black", label=kind) for kind, (colour, hatch) in _STYLES.items()]
    patches.append(Patch(fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa", label="bubble: nothing to do"))
    figure.legend(handles=patches, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    charts = [
        f"{_title(schedule, unit)}, at most {schedule.peak(0)} activations on the first device"
        for schedule in schedules
    ]
    pipeline = f"{schedules[0].microbatches} microbatches through {schedules[0].stages} stages"
    return set_alt_text(figure, f"Gantt charts of {pipeline}. {'; '.join(charts)}.")


def _title(schedule: Schedule, unit: str) -> str:
    return f"{schedule.name}: {digits(schedule.length)} {unit} long, bubble {schedule.bubble:.1%}"


def _passes(axes: Axes, schedule: Schedule, longest: float, unit: str) -> None:
    bubble = Rectangle((0, -0.42), schedule.length, schedule.stages - 0.16, fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa")
    axes.add_patch(bubble)
    for slot in schedule.slots:
        _box(axes, slot, longest)
    axes.set(yticks=range(schedule.stages), yticklabels=[f"stage {i}" for i in range(schedule.stages)])
    axes.set_ylim(schedule.stages - 0.5, -0.5)
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    axes.set_title(_title(schedule, unit), fontsize=10, loc="left", weight="bold")


def _box(axes: Axes, slot: Slot, longest: float) -> None:
    colour, hatch = _STYLES[slot.kind]
    corner, width = (slot.start, slot.stage - 0.42), slot.end - slot.start
    axes.add_patch(Rectangle(corner, width, 0.84, fc=colour, hatch=hatch, ec="#8a5a00", lw=0))
    axes.add_patch(Rectangle(corner, width, 0.84, fill=False, ec="black", lw=0.7))
    text = str(slot.microbatch)
    if width / longest * _CHART_WIDTH >= _CHARACTER * (len(text) + 0.3):
        label = axes.text(slot.start + width / 2, slot.stage, text, ha="center", va="center", fontsize=8.5)
        if hatch:
            label.set_bbox({"fc": colour, "ec": "none", "pad": 0.8})


def _activations(axes: Axes, schedule: Schedule) -> None:
    peaks = [schedule.peak(stage) for stage in range(schedule.stages)]
    for stage, colour, dashes in ((0, BLUE, "-"), (schedule.stages - 1, VERMILION, "--")):
        times, counts = zip(*schedule.stored_activations(stage), strict=True)
        label = f"stage {stage}: at most {peaks[stage]}"
        x, y = [0, *times, schedule.length], [0, *counts, counts[-1]]
        axes.step(x, y, where="post", color=colour, ls=dashes, lw=1.8, label=label)
    axes.set(ylim=(0, 1.1 * max(peaks) + 0.3))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelbottom=True, labelsize=9)
    style = {"fontsize": 8.5, "title_fontsize": 8.5, "alignment": "left", "handlelength": 1.6, "frameon": False}
    axes.legend(title="activations held", loc="upper left", bbox_to_anchor=(1, 1.1), **style)
