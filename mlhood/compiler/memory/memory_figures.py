"""Figures of memory plans."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlhood.compiler.lir.program import Lifetime
from mlhood.compiler.memory.plan import MemoryPlan, live_bytes
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import BLUE, DARK, LIGHT_BLUE, LIGHT_YELLOW, ORANGE

LABELLED = 12  # buffers
FONT = 7.5  # points
CHARACTER = 0.6 * FONT  # width of one, in points
WIDTH, HEIGHT = 380, 175  # of the upper chart, in points
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def strip_chart(plan: MemoryPlan, name: str = "") -> Figure:
    """Draw buffers as rectangles, instructions across and addresses up, and the bytes that are live at each moment.

    Args:
        plan: The plan.
        name: Of the program.
    """
    scale, unit = _unit(plan.bytes)
    figure, (places, live) = plt.subplots(
        2, 1, figsize=(6.4, 4.6), sharex=True, layout="constrained", height_ratios=(3, 1)
    )
    steps = live_bytes(plan.lifetimes) / scale
    _draw_buffers(places, plan, scale, (WIDTH, HEIGHT), plan.bytes)
    live.step(range(len(steps) + 1), [*steps, 0], where="post", color=BLUE, label="live")
    for axes in (places, live):
        axes.axhline(plan.live_maximum / scale, color=ORANGE, ls="--", lw=1.2, label="live maximum")
        axes.set_ylim(0, 1.05 * max(plan.bytes / scale, 1e-9))
    places.axhline(plan.bytes / scale, color="#333333", lw=1.2, label="arena")
    places.set(ylabel=f"address, {unit}", xlim=(0, max(len(steps), 1)))
    live.set(xlabel="instruction", ylabel=f"live, {unit}")
    largest = _largest(plan)
    figure.legend(*places.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    title = f"{name}: " if name else ""
    figure.suptitle(f"{title}{plan.efficiency:.1%} of the arena is live at once", x=0.01, ha="left", fontsize=11)
    return set_alt_text(
        figure,
        f"{len(plan.lifetimes)} buffers over {len(steps)} instructions, in an arena of {plan.bytes:,} bytes; at most "
        f"{plan.live_maximum:,} are live at once.",
        f"The largest: {', '.join(f'{buffer.name} {buffer.bytes:,} bytes' for buffer in largest[:3])}.",
    )


def side_by_side(plans: Mapping[str, MemoryPlan], name: str = "") -> Figure:
    """Draw plans of the same buffers next to each other, with one axis of addresses.

    Args:
        plans: One to three plans by the name of the allocator.
        name: Of the program.
    """
    most = max(plan.bytes for plan in plans.values())
    scale, unit = _unit(most)
    figure, axes = plt.subplots(
        1, len(plans), figsize=(6.4, 4.0), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    width = WIDTH / len(plans)
    for (allocator, plan), places in zip(plans.items(), axes[0], strict=True):
        _draw_buffers(places, plan, scale, (width, HEIGHT), most)
        places.axhline(plan.live_maximum / scale, color=ORANGE, ls="--", lw=1.2, label="live maximum")
        places.axhline(plan.bytes / scale, color=DARK, lw=1.2, label="arena")
        places.set(xlabel="instruction", xlim=(0, max(len(live_bytes(plan.lifetimes)), 1)))
        places.set_title(f"{allocator}: {plan.efficiency:.1%}", fontsize=10, loc="left")
    axes[0][0].set(ylabel=f"address, {unit}", ylim=(0, 1.05 * max(most / scale, 1e-9)))
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(f"{name}: how much of each arena is live at once" if name else "", x=0.01, ha="left", fontsize=11)
    arenas = [f"{allocator} {plan.bytes:,} bytes ({plan.efficiency:.1%})" for allocator, plan in plans.items()]
    first = next(iter(plans.values()))
    return set_alt_text(
        figure,
        f"Memory plans of {len(first.lifetimes)} buffers side by side, at most {first.live_maximum:,} bytes live at "
        f"once. Arenas, and how much of them is live: {', '.join(arenas)}.",
    )


def _unit(size: int) -> tuple[int, str]:
    return next((scale, unit) for scale, unit in UNITS if size >= scale or scale == 1)


def _largest(plan: MemoryPlan) -> list[Lifetime]:
    return sorted(plan.lifetimes, key=lambda buffer: -buffer.bytes * (buffer.last - buffer.first + 1))[:LABELLED]


def _draw_buffers(axes: Axes, plan: MemoryPlan, scale: int, size: tuple[float, float], most: int) -> None:
    """Draw a rectangle for each buffer, with the names of the largest; size of the chart in points."""
    boxes = [
        Rectangle((b.first, plan.offsets[b.name] / scale), b.last - b.first + 1, b.bytes / scale)
        for b in plan.lifetimes
    ]
    colours = [(LIGHT_BLUE, LIGHT_YELLOW)[i % 2] for i in range(len(boxes))]
    axes.add_collection(PatchCollection(boxes, facecolors=colours, edgecolors=BLUE, linewidths=0.8))
    steps = len(live_bytes(plan.lifetimes))
    for buffer in _largest(plan):
        lengths = size[0] * (buffer.last - buffer.first + 1) / steps, size[1] * buffer.bytes / most
        _label(axes, buffer, (plan.offsets[buffer.name] + buffer.bytes / 2) / scale, lengths)


def _label(axes: Axes, buffer: Lifetime, middle: float, lengths: tuple[float, float]) -> None:
    """Write a buffer's name into its rectangle, along the side in which it fits; none if it fits in neither."""
    length = len(buffer.name) * CHARACTER
    width, height = lengths
    if length <= width and height >= FONT:
        rotation = 0
    elif length <= height and width >= FONT:
        rotation = 90
    else:
        return
    centre = (buffer.first + buffer.last + 1) / 2, middle
    axes.annotate(buffer.name, centre, ha="center", va="center", fontsize=FONT, rotation=rotation)
