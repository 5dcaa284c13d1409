"""Figures of systolic arrays: elements at six cycles, and dataflows compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from mlhood.dataflow.systolic.array import DATAFLOWS, Array, Product, count
from mlhood.dataflow.systolic.simulator import EMPTY, Run
from mlhood.measure.units import digits
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import LIGHT_YELLOW, LINE_COLOURS, MARKERS, SKY, STATIONARY

_MOVES = {
    "ws": "inputs move right, partial sums down",
    "is": "weights move right, partial sums down",
    "os": "inputs move right, weights down",
}
# the product's index that labels the stationary operand, and the streamed one
_RESIDENT, _STREAMED = "k", {"ws": "m", "is": "n", "os": "k"}


def filling(run: Run) -> Figure:
    """Draw the array at six cycles of the first fold: busy elements are framed, with the streamed operand's index.

    For weight and input stationary arrays, the row k of the stationary operand is written above it.
    """
    array = run.array
    last = int((run.fold == 0).sum()) - 1
    drawn = [round(last * part / 5) for part in range(6)]
    across, down = 3, 2
    width, height = 0.42 * array.columns + 0.3, 0.42 * array.rows + 0.45
    figure, grid = plt.subplots(
        down, across, figsize=(across * width, down * height + 0.5), dpi=90, layout="constrained"
    )
    for axes, cycle in zip(grid.flat, drawn, strict=True):
        axes.axis("off")
        _elements(axes, run, cycle)
    step = {"ws": "multiplies row m of the inputs", "is": "multiplies filter n", "os": "adds term k of the sum"}
    figure.suptitle(f"{DATAFLOWS[array.dataflow]}: {_MOVES[array.dataflow]}", fontsize=10)
    patches = [Patch(fc=SKY, ec="black", lw=1.6, label=f"busy: {step[array.dataflow]}")]
    if array.dataflow != "os":
        operand = "weights" if array.dataflow == "ws" else "transposed inputs"
        patches.append(Patch(fc=LIGHT_YELLOW, ec="#888888", label=f"loaded: holds row k of the {operand}"))
    figure.legend(handles=patches, loc="outside lower center", ncols=1, fontsize=8, frameon=False)
    counts = ", ".join(f"{run.busy[cycle].sum()} in cycle {cycle}" for cycle in drawn)
    return set_alt_text(
        figure,
        f"An array of {array.rows} x {array.columns}, {DATAFLOWS[array.dataflow]}: {_MOVES[array.dataflow]}.",
        f"Busy elements: {counts}; the wave runs from the upper left to the lower right.",
    )


def _elements(axes: Axes, run: Run, cycle: int) -> None:
    step, resident = run.step[cycle], run.resident[cycle]
    rows, columns = step.shape
    for row, column in np.ndindex(rows, columns):
        busy, loaded = step[row, column] != EMPTY, resident[row, column] != EMPTY
        colour, edge, line = (SKY, "black", 1.6) if busy else (LIGHT_YELLOW if loaded else "white", "#888888", 0.7)
        axes.add_patch(Rectangle((column, row), 1, 1, fc=colour, ec=edge, lw=line, zorder=2 if busy else 1))
        if loaded:
            text = f"{_RESIDENT}{resident[row, column]}"
            axes.text(column + 0.5, row + 0.27, text, ha="center", va="center", fontsize=6.5)
        if busy:
            text, y = f"{_STREAMED[run.array.dataflow]}{step[row, column]}", row + (0.68 if loaded else 0.5)
            axes.text(column + 0.5, y, text, ha="center", va="center", fontsize=7.5, weight="bold")
    axes.set(xlim=(-0.1, columns + 0.1), ylim=(rows + 0.1, -0.1), aspect="equal")
    axes.set_title(f"cycle {cycle}: {int((step != EMPTY).sum())} busy", fontsize=8.5)


def compare(cycles: Mapping[str, Mapping[str, float]], what: str = "cycles") -> Figure:
    """Draw grouped bars: {"C1": {"ws": 458208, "is": 776160, "os": 475104}, ...}; each group's smallest is bold."""
    orders = list(dict.fromkeys(order for group in cycles.values() for order in group))
    styles = {order: STATIONARY[order.upper()] for order in orders}
    figure, axes = plt.subplots(figsize=(1.0 + 1.4 * len(cycles), 3.4), dpi=90, layout="constrained")
    width = 0.8 / len(orders)
    for i, group in enumerate(cycles.values()):
        for order, value in group.items():
            colour, hatch = styles[order]
            x = i + (orders.index(order) - (len(orders) - 1) / 2) * width
            axes.bar(x, value, 0.92 * width, color=colour, hatch=hatch, ec="black", lw=0.8)
            weight = "bold" if value == min(group.values()) else "normal"
            axes.text(x, value, _short(value), ha="center", va="bottom", fontsize=8, weight=weight)
    names = {order: f"{order} ({DATAFLOWS[order.lower()]})" for order in orders}
    handles = [Patch(fc=styles[order][0], hatch=styles[order][1], ec="black", label=names[order]) for order in orders]
    axes.set(xticks=range(len(cycles)), xticklabels=list(cycles), ylabel=what)
    axes.set_ylim(0, 1.08 * max(max(group.values()) for group in cycles.values()))
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(orders), fontsize=8.5, frameon=False)
    bars = [f"{name}: {listing((o, _short(value)) for o, value in group.items())}" for name, group in cycles.items()]
    return set_alt_text(figure, f"Bar chart of {what}. {'; '.join(bars)}.")


def sides(layers: Sequence[Product], sizes: Sequence[int]) -> Figure:
    """Draw the ratio of the cycles of IS to those of WS over the size of square arrays, a line per layer.

    Args:
        layers: The layers.
        sizes: R = C.
    """
    figure, axes = plt.subplots(figsize=(6, 3.6), dpi=90, layout="constrained")
    lines = []
    for i, layer in enumerate(layers):
        ws, input_stationary = (
            np.array([count(layer, Array(size, size, order)).cycles for size in sizes]) for order in ("ws", "is")
        )
        ratios = input_stationary / ws
        marker, colour = MARKERS[i % 6], LINE_COLOURS[i % 6]
        name = f"{layer.name}: M {layer.m:,}, N {layer.n:,}, K {layer.k:,}"
        axes.plot(sizes, ratios, color=colour, marker=marker, mec="black", ms=6, label=name)
        lines.append(f"{layer.name}: {', '.join(digits(ratio) for ratio in ratios)}")
    axes.axhline(1, color="black", lw=1.2, ls="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xticks=list(sizes), xticklabels=[f"{size} x {size}" for size in sizes], xlabel="array")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("cycles of IS / cycles of WS")
    style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "fontsize": 8.5}
    for order, offset, va in (("WS", 5, "bottom"), ("IS", -5, "top")):
        axes.annotate(f"{order} is faster", (1, 1), (5, offset), ha="left", va=va, **style)
    figure.legend(loc="outside upper center", ncols=min(len(layers), 2), fontsize=8.5, frameon=False)
    return set_alt_text(
        figure,
        "Cycles of IS divided by those of WS, above 1 where WS is",
        f"faster, on square arrays of side {', '.join(map(str, sizes))}. {'; '.join(lines)}.",
    )


def _short(value: float) -> str:
    """Return a number with three digits and an SI prefix: `458 k`, `1.82 M`."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{digits(value / size)} {prefix}"
    return f"{value:g}"
