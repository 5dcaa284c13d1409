"""Pictures of arrays: the elements at chosen cycles, how many are busy, and what the orders cost over layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from mlhood.dataflow.systolic.array import DATAFLOWS, Array
from mlhood.dataflow.systolic.layer import Layer
from mlhood.dataflow.systolic.mapping import count
from mlhood.dataflow.systolic.simulator import EMPTY, Run
from mlhood.errors import DataflowError
from mlhood.measure.units import digits
from mlhood.plotting.diagram import BLUE, GREEN, LIGHT_YELLOW, ORANGE, PINK, SKY, VERMILION

MOST_ELEMENTS = 16  # of a side that can still be read
_LOOKS = {"ws": (SKY, ""), "is": (ORANGE, "//"), "os": (GREEN, "..")}
_LEVELS = ((SKY, ""), (BLUE, "\\\\"), (GREEN, ".."), (ORANGE, "//"), (VERMILION, "xx"), (PINK, "oo"))
_MARKERS = "osD^vP"
_MOVES = {
    "ws": "weights stay; inputs move right, partial sums down",
    "is": "inputs stay; weights move right, partial sums down",
    "os": "sums stay; inputs move right, weights down",
}
# which index of the product an element's lines name: what lies in it, and what passes
_HELD, _PASSING = "k", {"ws": "m", "is": "n", "os": "k"}


def filling(run: Run, cycles: Sequence[int] | None = None) -> Figure:
    """Draw the array at some cycles: busy elements are dark and framed, with the index of what passes in bold.

    In weight and input stationary order, the row of K that lies in an element stands above it.

    Args:
        run: Of an array of at most 16 x 16.
        cycles: Which; six from the first fold if left out.

    Raises:
        DataflowError: The array is too large to be read, or the run has no such cycle.
    """
    array = run.array
    if max(array.rows, array.columns) > MOST_ELEMENTS:
        raise DataflowError(
            "this array is too large to be drawn",
            expected=f"at most {MOST_ELEMENTS} x {MOST_ELEMENTS}",
            got=f"{array.rows} x {array.columns}",
        )
    last = int((run.fold == 0).sum()) - 1
    chosen = [round(last * part / 5) for part in range(6)] if cycles is None else list(cycles)
    if not chosen or not all(0 <= cycle < run.cycles for cycle in chosen):
        raise DataflowError("the run has no such cycle", expected=f"0 to {run.cycles - 1}", got=chosen)
    across = min(len(chosen), 6 if array.columns <= 4 else 3)
    down = -(-len(chosen) // across)
    width, height = 0.42 * array.columns + 0.3, 0.42 * array.rows + 0.45
    figure, grid = plt.subplots(
        down, across, figsize=(across * width, down * height + 0.5), dpi=90, squeeze=False, layout="constrained"
    )
    for place, axes in enumerate(grid.flat):
        axes.axis("off")
        if place < len(chosen):
            _elements(axes, run, chosen[place])
    passes = {"ws": "row m of the inputs passes", "is": "filter n passes", "os": "term k of the sum is added"}
    figure.suptitle(f"{DATAFLOWS[array.dataflow]}: {_MOVES[array.dataflow]}", fontsize=10)
    patches = [Patch(fc=SKY, ec="black", lw=1.6, label=f"busy: {passes[array.dataflow]}")]
    if array.dataflow != "os":
        lies = "weights" if array.dataflow == "ws" else "transposed inputs"
        patches.append(Patch(fc=LIGHT_YELLOW, ec="#888888", label=f"loaded: row k of the {lies} lies here"))
    figure.legend(handles=patches, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def _elements(axes: Axes, run: Run, cycle: int) -> None:
    step, held = run.step[cycle], run.held[cycle]
    rows, columns = step.shape
    for row, column in np.ndindex(rows, columns):
        busy, loaded = step[row, column] != EMPTY, held[row, column] != EMPTY
        colour, edge, line = (SKY, "black", 1.6) if busy else (LIGHT_YELLOW if loaded else "white", "#888888", 0.7)
        axes.add_patch(Rectangle((column, row), 1, 1, fc=colour, ec=edge, lw=line, zorder=2 if busy else 1))
        if loaded:
            text = f"{_HELD}{held[row, column]}"
            axes.text(column + 0.5, row + 0.27, text, ha="center", va="center", fontsize=6.5)
        if busy:
            text, y = f"{_PASSING[run.array.dataflow]}{step[row, column]}", row + (0.68 if loaded else 0.5)
            axes.text(column + 0.5, y, text, ha="center", va="center", fontsize=7.5, weight="bold")
    axes.set(xlim=(-0.1, columns + 0.1), ylim=(rows + 0.1, -0.1), aspect="equal")
    axes.set_title(f"cycle {cycle}: {int((step != EMPTY).sum())} busy", fontsize=8.5)


def busy(runs: Mapping[str, Run]) -> Figure:
    """Draw how many elements multiply in each cycle, a panel a run; dashed lines stand where a fold begins."""
    figure, grid = plt.subplots(
        len(runs), 1, figsize=(8.5, 0.5 + 1.25 * len(runs)), dpi=90, sharex=True, squeeze=False, layout="constrained"
    )
    for axes, (name, run) in zip(grid[:, 0], runs.items(), strict=True):
        at_once = run.busy.sum(axis=(1, 2))
        elements = run.array.elements
        axes.stairs(at_once, fill=True, color=_LOOKS[run.array.dataflow][0], ec="black", lw=0.6)
        starts = np.flatnonzero(np.diff(run.fold, prepend=-1))
        axes.vlines(starts[1:], 0, elements, color="#444444", ls="--", lw=0.8)
        folds = f"{len(starts)} folds" if len(starts) > 1 else "1 fold"
        use = run.macs / (run.cycles * elements)
        axes.set(ylim=(0, 1.05 * elements), yticks=(0, elements), ylabel="busy")
        axes.set_title(f"{name}: {folds}, {run.cycles} cycles, {use:.0%} of all elements busy", fontsize=9, loc="left")
    grid[-1, 0].set(xlabel="cycle", xlim=(0, max(run.cycles for run in runs.values())))
    return figure


def compare(cycles: Mapping[str, Mapping[str, float]], what: str = "cycles") -> Figure:
    """Draw grouped bars: {"C1": {"ws": 458208, "is": 776160, "os": 475104}, ...}; the least of each group is bold."""
    orders = list(dict.fromkeys(order for group in cycles.values() for order in group))
    looks = {order: _LOOKS.get(order, _LEVELS[number % len(_LEVELS)]) for number, order in enumerate(orders)}
    figure, axes = plt.subplots(figsize=(1.2 + 1.9 * len(cycles), 3.4), dpi=90, layout="constrained")
    width = 0.8 / len(orders)
    for place, group in enumerate(cycles.values()):
        for order, value in group.items():
            colour, hatch = looks[order]
            x = place + (orders.index(order) - (len(orders) - 1) / 2) * width
            axes.bar(x, value, 0.92 * width, color=colour, hatch=hatch, ec="black", lw=0.8)
            weight = "bold" if value == min(group.values()) else "normal"
            axes.text(x, value, _short(value), ha="center", va="bottom", fontsize=8, weight=weight)
    names = {order: f"{order} ({DATAFLOWS[order]})" if order in DATAFLOWS else order for order in orders}
    handles = [Patch(fc=looks[order][0], hatch=looks[order][1], ec="black", label=names[order]) for order in orders]
    axes.set(xticks=range(len(cycles)), xticklabels=list(cycles), ylabel=what)
    axes.set_ylim(0, 1.08 * max(max(group.values()) for group in cycles.values()))
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(orders), fontsize=8.5, frameon=False)
    return figure


def sides(layers: Sequence[Layer], sizes: Sequence[int], orders: tuple[str, str] = ("ws", "is")) -> Figure:
    """Draw for layers on ever larger square arrays how many cycles the second order takes for one of the first.

    Args:
        layers: A line each.
        sizes: R and C.
        orders: Two of `DATAFLOWS`: above 1 the first is the faster one.
    """
    figure, axes = plt.subplots(figsize=(7.5, 3.6), dpi=90, layout="constrained")
    for number, layer in enumerate(layers):
        first, second = (
            np.array([count(layer, Array(size, size, order)).cycles for size in sizes]) for order in orders
        )
        marker, colour = _MARKERS[number % len(_MARKERS)], _LEVELS[number % len(_LEVELS)][0]
        name = f"{layer.name}: M {layer.m:,}, N {layer.n:,}, K {layer.k:,}"
        axes.plot(sizes, second / first, color=colour, marker=marker, mec="black", ms=6, label=name)
    axes.axhline(1, color="black", lw=1.2, ls="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xticks=list(sizes), xticklabels=[f"{size} x {size}" for size in sizes], xlabel="array")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel(f"cycles of {orders[1].upper()} / cycles of {orders[0].upper()}")
    for order, place, hang in ((orders[0], 5, "bottom"), (orders[1], -5, "top")):
        axes.annotate(
            f"{order.upper()} is faster", (1, 1), (5, place), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="left", va=hang, fontsize=8.5,
        )  # fmt: skip
    figure.legend(loc="outside upper center", ncols=min(len(layers), 2), fontsize=8.5, frameon=False)
    return figure


def energies(bars: Mapping[str, Mapping[str, float]], unit: str = "multiply-accumulates") -> Figure:
    """Draw energy by level, a stacked bar each: {"C1, ws": `energy(...)`, ...}."""
    figure, axes = plt.subplots(figsize=(8.5, 1.0 + 0.32 * len(bars)), dpi=90, layout="constrained")
    levels = list(dict.fromkeys(level for bar in bars.values() for level in bar))
    left = dict.fromkeys(bars, 0.0)
    for level, (colour, hatch) in zip(levels, _LEVELS, strict=False):
        sizes = [bar.get(level, 0.0) for bar in bars.values()]
        axes.barh(list(bars), sizes, left=list(left.values()), color=colour, hatch=hatch, ec="black", label=level)
        left = {name: left[name] + size for name, size in zip(left, sizes, strict=True)}
    for place, total in enumerate(left.values()):
        axes.text(total, place, f" {_short(total)}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=f"energy in {unit}", xlim=(0, 1.1 * max(left.values())))
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    figure.legend(loc="outside upper center", ncols=len(levels), fontsize=8.5, frameon=False)
    return figure


def _short(value: float) -> str:
    """Return a number with three digits and a prefix: `458 k`, `1.82 M`."""
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{digits(value / size)} {prefix}"
    return f"{value:g}"
