"""Figures of slicings: bytes in each cache, predicted traffic, and measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

from mlhood.dataflow.slicing.caches import LEVELS
from mlhood.dataflow.slicing.problem import Order
from mlhood.dataflow.slicing.traffic import Traffic
from mlhood.dataflow.tables import ORDERS
from mlhood.measure.machine import binary_size
from mlhood.measure.measurement import Measurement
from mlhood.measure.table import Table
from mlhood.measure.units import digits
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import DARK, LIGHT_GREY, ORANGE, SKY, SMALL, STATIONARY, VERMILION

_MARKERS: dict[Order, str] = {"IS": "o", "WS": "s"}
_LONG = 0.35  # share of the axis from which a bar has room for its label
_MAX_LINEAR = 8  # ratio of the longest to the shortest time; beyond it the axis is logarithmic


def levels(needs: Mapping[str, Sequence[float]], rooms: Sequence[float]) -> Figure:
    """Draw the bytes that slicings need in each level of cache, as a share of what they may fill.

    Args:
        needs: Bytes in L1, L2 and L3, by the name of a slicing.
        rooms: Bytes that slicings may occupy in L1, L2 and L3; infinite where a level limits nothing.
    """
    group = len(needs) + 1
    figure, axes = plt.subplots(figsize=(6.2, 0.9 + 0.25 * 3 * group), dpi=90, layout="constrained")
    shares = [size / room for sizes in needs.values() for size, room in zip(sizes, rooms, strict=True)]
    axes.set(xlim=(0, 1.3 * max(1.0, *shares)), ylim=(3 * group - 0.5, -0.7), xlabel="share of what may be filled")
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for level, (name, capacity) in enumerate(zip(LEVELS, rooms, strict=True)):
        first = level * group
        limit = "no limit" if capacity == math.inf else f"the line is the limit, {binary_size(int(capacity))}"
        style = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 9.5, "weight": "bold"}
        axes.text(0.01, first, f"{name}: {limit}", **style)
        _level_bars(axes, [sizes[level] for sizes in needs.values()], capacity, first + 1)
    axes.set_yticks([level * group + 1 + row for level in range(3) for row in range(len(needs))], [*needs] * 3)
    axes.tick_params(labelsize=9)
    parts = [
        f"{name} ({'no limit' if capacity == math.inf else binary_size(int(capacity))}): "
        + listing((label, binary_size(int(sizes[level]))) for label, sizes in needs.items())
        for level, (name, capacity) in enumerate(zip(LEVELS, rooms, strict=True))
    ]
    return set_alt_text(
        figure, f"Bar chart of the bytes needed in each cache; in brackets, what may be filled. {'; '.join(parts)}."
    )


def _level_bars(axes: Axes, sizes: Sequence[float], capacity: float, first: int) -> None:
    """Draw one level's bars and the line of its capacity."""
    for row, size in enumerate(sizes, first):
        too_large = size > capacity
        colour, hatch, weight = (VERMILION, "xx", "bold") if too_large else (LIGHT_GREY, "", "normal")
        share = size / capacity
        axes.barh(row, share, 0.74, color=colour, hatch=hatch, ec="black", lw=0.7)
        text = f"{binary_size(int(size))}{', too large' if too_large else ''}"
        shift, align = (-6, "right") if share > _LONG * axes.get_xlim()[1] else (6, "left")
        style = {"textcoords": "offset points", "va": "center", "fontsize": 9, "weight": weight, "zorder": 6}
        box = {"fc": "white", "ec": "none", "pad": 0.6}
        axes.annotate(text, (share, row), (shift, 0), ha=align, bbox=box, **style)
    if capacity < math.inf:
        axes.plot([1, 1], [first - 0.5, first + len(sizes) - 0.5], color=DARK, lw=2.4, zorder=5)


def traffic(rows: Mapping[str, Mapping[Order, Traffic]], line: int) -> Figure:
    """Draw the predicted MiB loaded into each level, both orders side by side; each level has its own axis.

    A level loads what all levels below it serve.

    Args:
        rows: Traffic of IS and of WS, by the name of a slicing or a convolution.
        line: Bytes of a cache line.
    """
    into = {label: {order: _into(row[order], line) for order in ORDERS} for label, row in rows.items()}
    size = 5.4, 1.1 + 3 * (0.5 + 0.42 * len(rows))
    figure, panels = plt.subplots(3, 1, figsize=size, dpi=90, sharey=True, layout="constrained")
    for level, axes in enumerate(panels):
        longest = max(row[order][level] for row in into.values() for order in ORDERS)
        axes.set(title=f"MiB into {LEVELS[level]}", xlim=(0, 1.15 * longest))
        axes.locator_params(axis="x", nbins=4)
        for shift, order in zip((-0.2, 0.2), ORDERS, strict=True):
            lengths = [row[order][level] for row in into.values()]
            colour, hatch = STATIONARY[order]
            ys = [row + shift for row in range(len(lengths))]
            axes.barh(ys, lengths, 0.38, color=colour, hatch=hatch, ec="black", lw=0.7, label=order)
            style = {"textcoords": "offset points", "va": "center", "fontsize": SMALL}
            for y, length in zip(ys, lengths, strict=True):
                axes.annotate(digits(length), (length, y), (4, 0), **style)
        axes.tick_params(labelsize=9)
    panels[0].set_yticks(range(len(rows)), list(rows))
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9.5, handlelength=3)
    bars = [
        f"{label}: {listing((order, ' / '.join(map(digits, parts))) for order, parts in row.items())}"
        for label, row in into.items()
    ]
    return set_alt_text(figure, f"Bar charts of the predicted MiB loaded into {' / '.join(LEVELS)}. {'; '.join(bars)}.")


def _into(served: Traffic, line: int) -> list[float]:
    """Return the MiB loaded into L1, L2 and L3."""
    lines = (served.l2 + served.l3 + served.memory, served.l3 + served.memory, served.memory)
    return [count * line / 2**20 for count in lines]


def times(table: Table) -> Figure:
    """Draw the times of IS and of WS with the intervals of their medians, and write the ratio WS / IS beside them.

    Args:
        table: Filled with measurements, with columns IS and WS among its own.

    Raises:
        MeasureError: If one of these cells is empty.
    """
    measured: dict[str, list[Any]] = {order: [table[row, order] for row in table.rows] for order in ORDERS}
    figure, axes = plt.subplots(figsize=(6.4, 1.3 + 0.5 * len(table.rows)), dpi=90, layout="constrained")
    ends = [end for cells in measured.values() for cell in cells for end in (*cell.interval, cell.median)]
    axes.set(xscale="log" if max(ends) > _MAX_LINEAR * min(ends) else "linear", ylim=(len(table.rows) - 0.5, -0.5))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("ms: median and its 95 % interval")
    rows = []
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    for shift, order in zip((-0.14, 0.14), ORDERS, strict=True):
        _markers(axes, measured[order], order, shift)
    for row in range(1, len(table.rows), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", zorder=0)
    axes.set_yticks(range(len(table.rows)), table.rows, fontsize=9)
    axes.text(1.02, 1.03, "WS / IS [95 % interval]", transform=axes.transAxes, fontsize=9, weight="bold", va="bottom")
    for row, (is_time, ws_time) in enumerate(zip(measured["IS"], measured["WS"], strict=True)):
        ratio = ws_time.ratio(is_time)
        axes.text(1.02, row, f"{ratio}", transform=axes.get_yaxis_transform(), fontsize=9, va="center")
        milliseconds = f"IS {digits(1e3 * is_time.median)}, WS {digits(1e3 * ws_time.median)}"
        rows.append(f"{table.rows[row]}: {milliseconds}, ratio {ratio}")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=9)
    return set_alt_text(figure, f"Times in ms with intervals, and the ratio WS / IS. {'; '.join(rows)}.")


def waits(reads: int, reading: float, multiplying: float) -> Figure:
    """Draw when a nest reads and when it multiplies, if it never waits for its data, always does, or half the time.

    Args:
        reads: How often it reads its data.
        reading: Seconds of each reading.
        multiplying: Seconds of all multiply-adds, an equal part after each reading.
    """
    figure, axes = plt.subplots(figsize=(6.2, 2.6), dpi=90, layout="constrained")
    never, always = max(reads * reading, multiplying), reads * reading + multiplying
    times = {"never waits": never, "halfway": (never + always) / 2, "always waits": always}
    style = {"height": 0.36, "ec": "black", "lw": 0.8}
    for row, time in enumerate(times.values()):
        begins = [time / reads * i for i in range(reads)]
        ends = [begin + (time - multiplying) / reads for begin in begins]  # of waiting, where multiplying goes on
        axes.barh([row - 0.19] * reads, reading, left=begins, color=ORANGE, hatch="//", label="reads", **style)
        axes.barh([row + 0.19] * reads, multiplying / reads, left=ends, color=SKY, label="multiplies", **style)
        axes.text(time + 0.02 * always, row, f"{time:g} s", va="center", fontsize=9.5, weight="bold")
    axes.set_yticks(range(len(times)), list(times), fontsize=9)
    axes.set(xlabel="s", xlim=(0, 1.12 * always), ylim=(len(times) - 0.5, -0.5))
    figure.legend(*(part[:2] for part in axes.get_legend_handles_labels()), loc="outside upper center", ncols=2)
    text = listing((name, f"{time:g} s") for name, time in times.items())
    return set_alt_text(
        figure,
        f"{reads} readings of {reading:g} s and {multiplying:g} s of multiply-adds, one above the other: {text}.",
    )


def bounds(nests: Mapping[str, tuple[float, float, float]]) -> Figure:
    """Draw for each nest the times between which it lies, and the measured one.

    Args:
        nests: Milliseconds if it never waits for memory, if it always does, and as measured.
    """
    figure, axes = plt.subplots(figsize=(6.4, 1.3 + 0.5 * len(nests)), dpi=90, layout="constrained")
    never, always, measured = (list(column) for column in zip(*nests.values(), strict=True))
    rows = range(len(nests))
    widths = [most - least for least, most in zip(never, always, strict=True)]
    axes.barh(rows, widths, 0.5, left=never, color=LIGHT_GREY, ec=DARK, lw=0.8, label="never … always waiting")
    axes.plot(measured, rows, marker="o", color=SKY, ms=9, label="measured", ls="", mec="black", zorder=3)
    for row, (least, most, time) in enumerate(nests.values()):
        text = f"{digits(least)} … {digits(most)}\nmeasured {digits(time)}"
        axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), fontsize=9, va="center")
    axes.set_yticks(rows, list(nests), fontsize=9)
    axes.set(xlabel="ms", xlim=(0, None), ylim=(len(nests) - 0.5, -0.5))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    parts = [f"{name}: {' / '.join(map(digits, values))}" for name, values in nests.items()]
    return set_alt_text(figure, f"Times in ms if a nest never waits / always waits / measured. {'; '.join(parts)}.")


def _markers(axes: Axes, cells: Sequence[Measurement], order: Order, shift: float) -> None:
    colour, _ = STATIONARY[order]
    medians = [1e3 * cell.median for cell in cells]
    lower = [1e3 * (cell.median - cell.interval[0]) for cell in cells]
    upper = [1e3 * (cell.interval[1] - cell.median) for cell in cells]
    ys = [row + shift for row in range(len(cells))]
    style = {"color": colour, "ecolor": DARK, "mec": "black", "mew": 0.8, "ms": 7, "capsize": 3, "elinewidth": 1.3}
    axes.errorbar(medians, ys, xerr=(lower, upper), fmt=_MARKERS[order], label=order, **style)
