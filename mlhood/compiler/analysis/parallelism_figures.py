"""Figures of task parallelism in graphs: the critical path, and the speed-up on n workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from mlhood.compiler.analysis.parallelism import ListSchedule, TaskGraph, bounds, list_schedule
from mlhood.errors import CompilerError
from mlhood.measure.units import digits, times
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, LIGHT_GREY, ORANGE, SKY, VERMILION

MAX_WORKERS, MAX_TASKS = 16, 500
COUNTS = (1, 2, 4, 8, 16, 32)
_MAX_LABELLED_TASKS = 40


def speed_up(tasks: TaskGraph, workers: int = 4, unit: str = "", counts: Iterable[int] = COUNTS) -> Figure:
    """Draw the list schedule on some workers, and the speed-up as a function of their number with Graham's bounds.

    Args:
        tasks: The tasks.
        workers: Number of workers of the schedule on the left.
        unit: Unit of the costs.
        counts: Numbers of workers of the plot on the right.

    Raises:
        CompilerError: There are too many workers or tasks for a readable figure, or no counts.
    """
    counts = sorted(set(counts))
    if not counts or workers > MAX_WORKERS or len(tasks.costs) > MAX_TASKS:
        raise CompilerError(
            "the schedule cannot be drawn",
            expected=f"at most {MAX_WORKERS} workers and {MAX_TASKS} tasks, and one or more counts of workers",
            got=f"{workers} workers, {len(tasks.costs)} tasks, {len(counts)} counts",
        )
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(7.2, max(3.4, 1.6 + 0.4 * workers)), dpi=90, width_ratios=(1.7, 1), layout="constrained"
    )
    schedule = list_schedule(tasks, workers)
    _gantt(left, schedule, unit)
    speed_ups = _plot_speed_up(right, tasks, counts)
    return set_alt_text(
        figure,
        f"Left: a list schedule on {workers} workers, {times(schedule.speed_up)} as fast as one.",
        f"Right: the speed-up by the number of workers, {listing(zip(counts, map(times, speed_ups), strict=True))};",
        f"at most {times(tasks.parallelism)} with any number.",
    )


def critical_path(tasks: TaskGraph) -> Figure:
    """Draw each task as a dot, from left to right by its depth, and mark the critical path.

    In small graphs, tasks off the path with a cost are labelled. The area of a dot is proportional to its cost.

    Raises:
        CompilerError: There are too many tasks for a readable figure.
    """
    if len(tasks.costs) > MAX_TASKS:
        expected = f"at most {MAX_TASKS} tasks"
        raise CompilerError("the graph is too large to be drawn", expected=expected, got=len(tasks.costs))
    path = tasks.critical_path()
    positions = _layout(tasks, set(path))
    depth = max(x for x, _ in positions.values())
    rows = max(abs(y) for _, y in positions.values())
    figure, axes = plt.subplots(figsize=(7.2, 2.2 + 0.45 * rows), dpi=90, layout="constrained")
    _draw_dependencies(axes, tasks, positions, path)
    max_cost = max(tasks.costs.values()) or 1
    for name, (x, y) in positions.items():
        size = 25 + 150 * tasks.costs[name] / max_cost
        colour, marker = (SKY, "o") if name in path else (ORANGE, "s")
        axes.scatter([x], [y], s=size, c=colour, marker=marker, edgecolors="black", linewidths=0.9, zorder=3)
    for name, (x, y) in positions.items():
        if name not in path and tasks.costs[name] and len(tasks.costs) <= _MAX_LABELLED_TASKS:
            parts = name.split(".")  # layer2.0.downsample in two lines
            text = "\n".join((".".join(parts[:2]), ".".join(parts[2:]))).strip()
            axes.annotate(text, (x, y), (0, -12), textcoords="offset points", ha="center", va="top", fontsize=8.5)
    axes.set(xlim=(-0.8, depth + 0.8), ylim=(-rows - 0.9, 0.9))
    axes.axis("off")
    share = tasks.span / tasks.work if tasks.work else 1
    title = f"critical path: {len(path)} of {len(tasks.costs)} nodes, {share:.1%} of the work"
    axes.set_title(f"{title}; width {tasks.width}; work / span = {digits(tasks.parallelism)}", fontsize=10, loc="left")
    handles = [
        Line2D([], [], color="black", lw=2.4, marker="o", mfc=SKY, mec="black", ms=9, label="on the critical path"),
        Line2D([], [], color="#888888", lw=1, marker="s", mfc=ORANGE, mec="black", ms=8, label="off the path"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return set_alt_text(
        figure,
        f"A graph's {len(tasks.costs)} nodes from left to right, {len(path)} of them in a row: the critical path, with",
        f"{share:.1%} of the work. The others branch off below it; at most {tasks.width} could run at a time.",
    )


def _gantt(axes: Axes, schedule: ListSchedule, unit: str) -> None:
    path = set(schedule.tasks.critical_path())
    length = schedule.length or 1
    for worker in range(schedule.workers):
        axes.add_patch(Rectangle((0, worker - 0.4), length, 0.8, fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa", lw=0.5))
    for slot in schedule.slots:
        colour, hatch = (SKY, "") if slot.name in path else (ORANGE, "///")
        corner, width = (slot.start, slot.worker - 0.4), slot.end - slot.start
        axes.add_patch(Rectangle(corner, width, 0.8, fc=colour, hatch=hatch, ec="black", lw=0.7))
    axes.set(xlim=(0, length * 1.005), ylim=(schedule.workers - 0.5, -0.5), yticks=range(schedule.workers))
    axes.set_yticklabels([f"worker {worker}" for worker in range(schedule.workers)], fontsize=9)
    axes.set_xlabel(f"time [{unit}]" if unit else "time")
    axes.spines[:].set_visible(False)
    idle = 1 - schedule.tasks.work / (schedule.workers * length)
    axes.set_title(f"{schedule.workers} workers: {times(schedule.speed_up)}, idle {idle:.0%}", fontsize=10, loc="left")
    patches = [
        Patch(fc=SKY, ec="black", label="on the critical path"),
        Patch(fc=ORANGE, hatch="///", ec="black", label="off the path"),
        Patch(fc=LIGHT_GREY, hatch="xx", ec="#aaaaaa", label="idle"),
    ]
    axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, fontsize=9, frameon=False)


def _plot_speed_up(axes: Axes, tasks: TaskGraph, counts: list[int]) -> list[float]:
    """Plot the speed-ups of list schedules between their bounds, and return them."""
    speed_ups = [list_schedule(tasks, count).speed_up for count in counts]
    limits = [[tasks.work / length if length else 1.0 for length in bounds(tasks, count)] for count in counts]
    upper, lower = zip(*limits, strict=True)
    axes.plot(counts, counts, color="#888888", lw=1, ls=":", label="linear speed-up")
    axes.plot(counts, upper, color=VERMILION, lw=1.6, ls="--", label="upper bound of any schedule: min(n, W / S)")
    axes.plot(counts, speed_ups, color="black", lw=2, marker="o", ms=5, label="list schedule")
    axes.plot(counts, lower, color=BLUE, lw=1.6, ls="-.", label="lower bound of any list schedule")
    axes.fill_between(counts, lower, upper, color=LIGHT_GREY, zorder=0)
    top = max(2.0, 1.25 * max(upper))
    axes.set(xscale="log", ylim=(0, top), xlabel="workers n", ylabel="speed-up")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.set_title(f"at most {times(tasks.parallelism)}, for any n", fontsize=10, loc="left")
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), fontsize=8.5, frameon=False)
    return speed_ups


def _layout(tasks: TaskGraph, path: set[str]) -> dict[str, tuple[int, int]]:
    """Return the position of each task: the critical path on one line, the others below it."""
    below: dict[int, int] = defaultdict(int)
    positions = {}
    for name, depth in tasks.depths().items():
        below[depth] += name not in path
        positions[name] = depth, 0 if name in path else -below[depth]
    return positions


def _draw_dependencies(axes: Axes, tasks: TaskGraph, positions: dict[str, tuple[int, int]], path: list[str]) -> None:
    """Draw the edges between tasks; an edge that skips tasks on the same line is drawn as an arc above them."""
    path_edges = set(pairwise(path))
    for name, (x, y) in positions.items():
        for other in tasks.dependencies.get(name, ()):
            from_x, from_y = positions[other]
            on_path = (other, name) in path_edges
            style = {"color": "black" if on_path else "#888888", "lw": 2.4 if on_path else 1.0, "zorder": 1}
            if y == from_y and x > from_x + 1:
                along = np.linspace(0, 1, 30)
                axes.plot(from_x + (x - from_x) * along, y + 0.55 * np.sin(np.pi * along), **style)
            else:
                axes.plot([from_x, x], [from_y, y], **style)
