"""Pictures of what was counted, predicted or measured of slicings: bytes in caches, traffic, and times."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mlhood.dataflow.slicing.caches import LEVELS
from mlhood.dataflow.slicing.problem import ORDERS, Order
from mlhood.dataflow.slicing.traffic import Traffic
from mlhood.errors import SlicingError
from mlhood.measure.machine import binary_size
from mlhood.measure.measurement import Measurement
from mlhood.measure.ratio import Ratio
from mlhood.measure.table import Table
from mlhood.measure.units import digits
from mlhood.plotting.diagram import DARK, ORANGE, SKY, SMALL, VERMILION

_LOOKS: dict[Order, tuple[str, str, str]] = {"IS": (SKY, "//", "o"), "WS": (ORANGE, "..", "s")}
_WIDE = 8  # from the shortest to the longest time; beyond, the axis is logarithmic


def levels(needs: Mapping[str, Sequence[float]], rooms: Sequence[float]) -> Figure:
    """Draw what slicings take of each level of cache beside its room, on a logarithmic axis.

    Args:
        needs: Bytes of L1, L2 and L3, by the name of a slicing.
        rooms: Bytes that may be taken of L1, L2 and L3; infinite where a level limits nothing.

    Raises:
        SlicingError: If there is nothing to draw, or what is no number of bytes.
    """
    _some(needs, "slicings")
    for name, sizes in needs.items():
        _three(name, sizes, most=sys.float_info.max)
    _three("rooms", rooms, most=math.inf)
    group = len(needs) + 1
    figure, axes = plt.subplots(figsize=(9, 0.9 + 0.25 * 3 * group), dpi=90, layout="constrained")
    known = [size for sizes in (*needs.values(), rooms) for size in sizes if size < math.inf]
    axes.set_xscale("log", base=4)
    axes.set(xlim=(min(known) / 2, 12 * max(known)), ylim=(3 * group - 0.5, -0.7), xlabel="bytes needed")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: binary_size(int(size))))
    for level, (name, room) in enumerate(zip(LEVELS, rooms, strict=True)):
        first = level * group
        limit = "no limit" if room == math.inf else f"the line is its room, {binary_size(int(room))}"
        axes.text(0.01, first, f"{name}: {limit}", transform=axes.get_yaxis_transform(), va="center", fontsize=9.5,
                  weight="bold")  # fmt: skip
        _needed(axes, [sizes[level] for sizes in needs.values()], room, first + 1)
    axes.set_yticks([level * group + 1 + row for level in range(3) for row in range(len(needs))], [*needs] * 3)
    axes.tick_params(labelsize=9)
    return figure


def _three(name: str, sizes: Sequence[float], most: float) -> None:
    if len(sizes) != len(LEVELS) or not all(1 <= size <= most for size in sizes):
        raise SlicingError("these are no bytes of three levels", where=name, got=list(sizes),
                           expected="three numbers, from 1 on")  # fmt: skip


def _needed(axes: Axes, sizes: Sequence[float], room: float, first: int) -> None:
    """Draw one level's bars and the line of its room."""
    for row, size in enumerate(sizes, first):
        beyond = size > room
        colour, hatch, weight = (VERMILION, "xx", "bold") if beyond else (SKY, "", "normal")
        axes.barh(row, size, 0.74, color=colour, hatch=hatch, ec="black", lw=0.7)
        text = f"{binary_size(int(size))}{', too large' if beyond else ''}"
        axes.annotate(text, (size, row), (6, 0), textcoords="offset points", va="center", fontsize=9, zorder=6,
                      weight=weight, bbox={"fc": "white", "ec": "none", "pad": 0.6})  # fmt: skip
    if room < math.inf:
        axes.plot([room, room], [first - 0.5, first + len(sizes) - 0.5], color=DARK, lw=2.4, zorder=5)


def traffic(rows: Mapping[str, Mapping[Order, Traffic]], line: int = 64) -> Figure:
    """Draw the predicted MiB that come into each level, both orders side by side, on a logarithmic axis.

    What comes into a level is what all levels below it serve.

    Args:
        rows: Traffic of IS and of WS, by the name of a slicing or a convolution.
        line: Bytes of a cache line.

    Raises:
        SlicingError: If there is nothing to draw, an order is missing, or nothing comes into a level.
    """
    _some(rows, "rows")
    into = {label: {order: _into(label, row, order, line) for order in ORDERS} for label, row in rows.items()}
    sizes = [size for row in into.values() for parts in row.values() for size in parts]
    figure, panels = plt.subplots(1, 3, figsize=(9.4, 1.35 + 0.5 * len(rows)), dpi=90, sharex=True, sharey=True,
                                  layout="constrained")  # fmt: skip
    low, span = min(sizes) / 2, max(sizes) / min(sizes)
    for level, axes in enumerate(panels):
        axes.set(title=f"into {LEVELS[level]}", xlabel="MiB", xscale="log", xlim=(low, max(sizes) * 4 * span**0.4))
        for shift, order in zip((-0.2, 0.2), ORDERS, strict=True):
            lengths = [row[order][level] for row in into.values()]
            colour, hatch, _ = _LOOKS[order]
            places = [row + shift for row in range(len(lengths))]
            axes.barh(places, lengths, 0.38, color=colour, hatch=hatch, ec="black", lw=0.7, label=order)
            for place, length in zip(places, lengths, strict=True):
                axes.annotate(digits(length), (length, place), (4, 0), textcoords="offset points", va="center",
                              fontsize=SMALL)  # fmt: skip
        axes.tick_params(labelsize=9)
    panels[0].xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:g}"))
    panels[0].set_yticks(range(len(rows)), list(rows))
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False,
                  fontsize=9.5, handlelength=3)  # fmt: skip
    return figure


def _into(label: str, row: Mapping[Order, Traffic], order: Order, line: int) -> list[float]:
    """Return the MiB that come into L1, L2 and L3."""
    if order not in row:
        raise SlicingError("this row lacks an order", where=label, expected=ORDERS, got=list(row))
    found = row[order]
    lines = (found.l2 + found.l3 + found.memory, found.l3 + found.memory, found.memory)
    if min(lines) <= 0:
        raise SlicingError("a logarithmic axis has no place for nothing", where=f"{label}, {order}", got=lines,
                           expected="cache lines that come into each level")  # fmt: skip
    return [count * line / 2**20 for count in lines]


def times(table: Table) -> Figure:
    """Draw the times of IS and of WS with the intervals of their medians, and write the ratio WS / IS beside them.

    Args:
        table: Filled with measurements, with columns IS and WS among its own.

    Raises:
        SlicingError: If it has no such columns, or holds counts.
        MeasureError: If one of these cells is empty.
    """
    if table.kind != "measurement" or not {"IS", "WS"} <= set(table.columns):
        raise SlicingError("this table does not compare the orders", where=table.id, got=table.columns,
                           expected="measurements in columns IS and WS")  # fmt: skip
    found = {order: [_cell(table, row, order) for row in table.rows] for order in ORDERS}
    figure, axes = plt.subplots(figsize=(9.2, 1.3 + 0.5 * len(table.rows)), dpi=90, layout="constrained")
    ends = [end for cells in found.values() for cell in cells for end in (*cell.interval, cell.median)]
    axes.set(xscale="log" if max(ends) > _WIDE * min(ends) else "linear", ylim=(len(table.rows) - 0.5, -0.5))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("ms: median and its 95 % interval")
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    for shift, order in zip((-0.14, 0.14), ORDERS, strict=True):
        _markers(axes, found[order], order, shift)
    for row in range(1, len(table.rows), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", zorder=0)
    axes.set_yticks(range(len(table.rows)), table.rows, fontsize=9)
    beside = axes.get_yaxis_transform()
    axes.text(1.02, 1.03, "WS / IS [95 % interval]", transform=axes.transAxes, fontsize=9, weight="bold", va="bottom")
    for place, (stay_input, stay_weight) in enumerate(zip(found["IS"], found["WS"], strict=True)):
        ratio = stay_weight.ratio(stay_input)
        axes.text(1.02, place, f"{ratio}\n{_faster(ratio)}", transform=beside, fontsize=9, va="center")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=9)
    return figure


def _cell(table: Table, row: str, order: Order) -> Measurement:
    cell = table[row, order]
    if not isinstance(cell, Measurement):
        raise SlicingError("this cell is not measured", where=f"{table.id}, {row}/{order}", got=repr(cell))
    return cell


def _markers(axes: Axes, cells: Sequence[Measurement], order: Order, shift: float) -> None:
    colour, _, marker = _LOOKS[order]
    medians = [1e3 * cell.median for cell in cells]
    lower = [1e3 * (cell.median - cell.interval[0]) for cell in cells]
    upper = [1e3 * (cell.interval[1] - cell.median) for cell in cells]
    places = [row + shift for row in range(len(cells))]
    style = {"color": colour, "ecolor": DARK, "mec": "black", "mew": 0.8, "ms": 7, "capsize": 3, "elinewidth": 1.3}
    axes.errorbar(medians, places, xerr=(lower, upper), fmt=marker, label=order, **style)


def _faster(ratio: Ratio) -> str:
    """Say which order is faster, if the interval tells."""
    if 1 in ratio:
        return "no difference seen"
    return "IS is faster" if ratio.value > 1 else "WS is faster"


def _some(given: Mapping[str, object], what: str) -> None:
    if not given:
        raise SlicingError("there is nothing to draw", expected=f"one or more {what}", got="none")
