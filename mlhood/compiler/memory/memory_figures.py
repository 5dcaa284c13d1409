"""Figures of memory plans."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlhood.compiler.lir.program import Lifetime
from mlhood.compiler.memory.plan import MemoryPlan, live_bytes
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import BLUE, LIGHT_BLUE, LIGHT_YELLOW, ORANGE

LABELLED = 12  # buffers
FONT = 7.5  # points
CHARACTER = 0.6 * FONT  # width of one, in points
WIDTH, HEIGHT = 560, 190  # of the upper chart, in points
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def strip_chart(plan: MemoryPlan, name: str = "") -> Figure:
    """Draw buffers as rectangles, instructions across and addresses up, and the bytes that are live at each moment.

    Args:
        plan: The plan.
        name: Of the program.
    """
    scale, unit = next((scale, unit) for scale, unit in UNITS if plan.bytes >= scale or scale == 1)
    figure, (places, live) = plt.subplots(
        2, 1, figsize=(9.0, 5.0), sharex=True, layout="constrained", height_ratios=(3, 1)
    )
    boxes = [
        Rectangle((b.first, plan.offsets[b.name] / scale), b.last - b.first + 1, b.bytes / scale)
        for b in plan.lifetimes
    ]
    colours = [(LIGHT_BLUE, LIGHT_YELLOW)[i % 2] for i in range(len(boxes))]
    places.add_collection(PatchCollection(boxes, facecolors=colours, edgecolors=BLUE, linewidths=0.8))
    largest = sorted(plan.lifetimes, key=lambda buffer: -buffer.bytes * (buffer.last - buffer.first + 1))[:LABELLED]
    steps = live_bytes(plan.lifetimes) / scale
    for buffer in largest:
        _label(places, buffer, plan.offsets[buffer.name] / scale, buffer.bytes / scale, len(steps), plan.bytes / scale)
    live.step(range(len(steps) + 1), [*steps, 0], where="post", color=BLUE, label="live")
    for axes in (places, live):
        axes.axhline(plan.live_maximum / scale, color=ORANGE, ls="--", lw=1.2, label="live maximum")
        axes.set_ylim(0, 1.05 * max(plan.bytes / scale, 1e-9))
    places.axhline(plan.bytes / scale, color="#333333", lw=1.2, label="arena")
    places.set(ylabel=f"address, {unit}", xlim=(0, max(len(steps), 1)))
    live.set(xlabel="instruction", ylabel=f"live, {unit}")
    figure.legend(*places.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    title = f"{name}: " if name else ""
    figure.suptitle(f"{title}{plan.efficiency:.1%} of the arena is live at once", x=0.01, ha="left", fontsize=11)
    return set_alt_text(
        figure,
        f"{len(plan.lifetimes)} buffers over {len(steps)} instructions, in an arena of {plan.bytes:,} bytes; at most "
        f"{plan.live_maximum:,} are live at once.",
        f"The largest: {', '.join(f'{buffer.name} {buffer.bytes:,} bytes' for buffer in largest[:3])}.",
    )


def _label(axes: Axes, buffer: Lifetime, bottom: float, height: float, steps: int, top: float) -> None:
    """Write a buffer's name into its rectangle, along the side in which it fits; none if it fits in neither."""
    width = buffer.last - buffer.first + 1
    length = len(buffer.name) * CHARACTER
    if length <= WIDTH * width / steps:
        rotation = 0
    elif length <= HEIGHT * height / top:
        rotation = 90
    else:
        return
    middle = buffer.first + width / 2, bottom + height / 2
    axes.annotate(buffer.name, middle, ha="center", va="center", fontsize=FONT, rotation=rotation)
