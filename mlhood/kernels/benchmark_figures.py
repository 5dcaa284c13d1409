"""Pictures of what was measured or counted: ladder, peers, im2col's memory, whole models, a network's layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mlhood.kernels.figure_checks import check_not_empty, check_ordered, check_positive
from mlhood.measure.ratio import Ratio
from mlhood.measure.units import digits, duration, rate, times
from mlhood.plotting.diagram import BLUE, DARK, GREEN, LIGHT_GREY, MUTED, ORANGE, PINK, SKY, SMALL, VERMILION

_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PINK, SKY)
_BARS = (SKY, ORANGE, GREEN, PINK, VERMILION, BLUE)
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)))
_HATCHES = ("", "//", "..", "xx", "\\\\", "oo")
_REFERENCE = "blas"
_FACTORS = (0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32, 64)
_CUT = 3  # a bar this much longer than all others is cut


def ladder(rates: Mapping[str, Mapping[int, float]], peak: float) -> Figure:
    """Draw each rung's share of the peak over the size of the matrices; "blas" is the thick grey line to compare with.

    Args:
        rates: FLOP/s by n, by rung: {"naive": {64: 2e9, 128: 1.5e9}, "blas": {...}}.
        peak: FLOP/s of the machine.

    Raises:
        KernelError: Nothing to draw, or what is no rate.
    """
    check_not_empty(rates, "rungs")
    check_positive("peak", peak)
    shares = {name: _shares(name, line, peak) for name, line in rates.items()}
    sizes = sorted({n for line in shares.values() for n in line})
    figure, axes = plt.subplots(figsize=(8.6, 4.8), dpi=90, layout="constrained")
    top = max(1.06, 1.06 * max(share for line in shares.values() for share in line.values()))
    axes.set(xlabel="n, for matrices of n × n", ylabel="share of the peak", ylim=(0, top))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.axhline(1, color=DARK, lw=1.6)
    axes.text(0.01, 1.006, f"peak: {rate(peak)}", transform=axes.get_yaxis_transform(), va="bottom", fontsize=9)
    others = [name for name in shares if name != _REFERENCE]
    for i, name in enumerate(others):
        style = {"color": _COLOURS[i % 6], "marker": _MARKERS[i % 6], "ls": _DASHES[i % 6], "mec": "black", "mew": 0.6}
        axes.plot(list(shares[name]), list(shares[name].values()), lw=1.8, ms=6.5, zorder=3, **style)
    if _REFERENCE in shares:
        axes.plot(list(shares[_REFERENCE]), list(shares[_REFERENCE].values()), color="#aaaaaa", lw=6, zorder=2)
    _name_ends(axes, shares, top)
    return figure


def _shares(name: str, line: Mapping[int, float], peak: float) -> dict[int, float]:
    check_not_empty(line, f"sizes for {name}")
    for n, value in line.items():
        check_positive(f"rate of {name} at {n}", value)
    return {n: line[n] / peak for n in sorted(line)}


def _name_ends(axes: Axes, shares: Mapping[str, Mapping[int, float]], top: float) -> None:
    """Write each line's name at the right of the axes, as high as its end and clear of the others."""
    ends = {name: (max(line), line[max(line)]) for name, line in shares.items()}
    gap = 14 / (4.0 * 72) * top  # a line of text in axes about four inches high
    heights = spread([share for _, share in ends.values()], gap, 0.0, top)
    line = {"arrowstyle": "-", "color": MUTED, "lw": 0.8, "ls": ":", "shrinkB": 4}
    for (name, (n, share)), y in zip(ends.items(), heights, strict=True):
        weight = "bold" if name == _REFERENCE else "normal"
        axes.annotate(f"{name}  {share:.1%}", (n, share), (1.03, y), textcoords=axes.get_yaxis_transform(), va="center",
                      fontsize=9.5, weight=weight, annotation_clip=False, arrowprops=line)  # fmt: skip


def spread(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return values moved so that neighbours are `gap` apart at least, in the same order, between low and high."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    moved = list(values)
    floor = low
    for i in order:
        moved[i] = floor = max(values[i], floor)
        floor += gap
    ceiling = high
    for i in reversed(order):
        moved[i] = ceiling = min(moved[i], ceiling)
        ceiling -= gap
    return moved


def peers(rates: Mapping[str, Mapping[str, tuple[float, float, float]]], peak: float) -> Figure:
    """Draw implementations side by side for each layer, with their spread, and the peak as a line.

    Args:
        rates: Rate and its lower and upper end in FLOP/s, by implementation, by layer.
        peak: FLOP/s of the machine.

    Raises:
        KernelError: Nothing to draw, or what is no rate.
    """
    check_not_empty(rates, "layers")
    check_positive("peak", peak)
    for layer, row in rates.items():
        check_not_empty(row, f"implementations for {layer}")
        for name, (value, low, high) in row.items():
            check_positive(f"rate of {name} for {layer}", low)
            check_ordered(f"rate of {name} for {layer}", low, value, high)
    names = list(dict.fromkeys(name for row in rates.values() for name in row))
    figure, axes = plt.subplots(figsize=(8.8, 1.3 + len(rates) * (0.25 * len(names) + 0.2)), dpi=90)
    high = 0.86 / len(names)
    for i, name in enumerate(names):
        rows = [(at, row[name]) for at, row in enumerate(rates.values()) if name in row]
        places = [at - 0.43 + (i + 0.5) * high for at, _ in rows]
        middle, left, right = (np.array([values[part] for _, values in rows]) / 1e9 for part in range(3))
        axes.barh(places, middle, high, color=_BARS[i % 6], hatch=_HATCHES[i % 6], ec="black", lw=0.8, label=name)
        around = middle - left, right - middle
        axes.errorbar(middle, places, xerr=around, fmt="none", ecolor="white", capsize=4, capthick=3.5, lw=3.5)
        axes.errorbar(middle, places, xerr=around, fmt="none", ecolor=DARK, capsize=3, lw=1.2)
        for place, value, end in zip(places, middle, right, strict=True):
            text = f"{digits(value)}  ({value * 1e9 / peak:.0%})"
            axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center", fontsize=SMALL,
                          bbox={"fc": "white", "ec": "none", "pad": 0.8})  # fmt: skip
    longest = max(value[2] for row in rates.values() for value in row.values()) / 1e9
    axes.set(yticks=range(len(rates)), xlabel="GFLOP/s (share of the peak)")
    axes.set_yticklabels(rates, fontsize=9)
    axes.set_xlim(0, max(1.04 * peak / 1e9, 1.22 * longest))
    axes.set_ylim(len(rates) - 0.5, -0.5)
    axes.axvline(peak / 1e9, color=DARK, lw=1.8, ls="--", label=f"peak: {rate(peak)}", zorder=0)
    _legend(axes, len(names) + 1)
    return figure


def _legend(axes: Axes, entries: int) -> None:
    """Write what is what above the axes, and fit all into the figure."""
    place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": min(entries, 5)}
    axes.legend(frameon=False, fontsize=9, handlelength=2.5, **place)
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.tight_layout()


def ratios(layers: Mapping[str, Mapping[str, Ratio]], ours: str = "direct") -> Figure:
    """Draw how many times as fast one kernel is as others, layer by layer, each with its interval.

    Args:
        layers: By layer and name of another kernel: the other's time over ours.
        ours: What the others are compared with.

    Raises:
        KernelError: Nothing to draw.
    """
    check_not_empty(layers, "layers")
    names = list(dict.fromkeys(name for row in layers.values() for name in row))
    figure, axes = plt.subplots(figsize=(9.2, 0.9 + 0.3 * len(layers)), dpi=90, layout="constrained")
    axes.set(xscale="log", yticks=range(len(layers)), yticklabels=list(layers), ylim=(len(layers) - 0.4, -0.6))
    axes.set_xlabel(f"time of the other / time of {ours}: right of the line {ours} is faster")
    for y in range(1, len(layers), 2):
        axes.axhspan(y - 0.5, y + 0.5, color="#f4f4f4", zorder=0)
    for i, name in enumerate(names):
        shift = 0.22 * (i - (len(names) - 1) / 2)
        _one_peer(axes, i, name, {y + shift: row[name] for y, row in enumerate(layers.values()) if name in row})
    axes.axvline(1, color=DARK, lw=1.4)
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in _FACTORS if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    axes.tick_params(axis="y", labelsize=SMALL)
    figure.legend(loc="outside upper center", ncols=len(names), fontsize=9)
    return figure


def _one_peer(axes: Axes, i: int, name: str, found: Mapping[float, Ratio]) -> None:
    value = np.array([one.value for one in found.values()])
    ends = [value - [one.low for one in found.values()], [one.high for one in found.values()] - value]
    mean = math.exp(float(np.mean(np.log(value))))
    bars = axes.errorbar(value, list(found), xerr=ends, fmt=_MARKERS[i % 6], color=_COLOURS[i % 6], ms=5.5,
                         elinewidth=1.2, capsize=2, label=f"{name} (geometric mean {mean:.2f})")  # fmt: skip
    bars.lines[0].set(markeredgecolor="black", markeredgewidth=0.6)


def im2col_memory(layers: Mapping[str, tuple[int, int]]) -> Figure:
    """Draw each layer's input and the columns that im2col makes of it, and how many times as large they are.

    Args:
        layers: Bytes of the input and of the columns, by layer.

    Raises:
        KernelError: Nothing to draw, or what is no size.
    """
    check_not_empty(layers, "layers")
    for name, sizes in layers.items():
        for what, size in zip(("input", "columns"), sizes, strict=True):
            check_positive(f"bytes of the {what} of {name}", size)
    unit, divisor = ("MiB", 2**20) if max(max(sizes) for sizes in layers.values()) >= 2**20 else ("KiB", 2**10)
    figure, axes = plt.subplots(figsize=(8.6, 1.1 + 0.55 * len(layers)), dpi=90)
    for part, (what, colour, hatch) in enumerate((("input", SKY, ""), ("columns of im2col", ORANGE, "//"))):
        places = [row + 0.4 * (part - 0.5) for row in range(len(layers))]
        sizes = [size[part] / divisor for size in layers.values()]
        axes.barh(places, sizes, 0.4, color=colour, hatch=hatch, ec="black", lw=0.8, label=what)
        growth = [f",  {times(size[1] / size[0])} the input" if part else "" for size in layers.values()]
        for place, size, more in zip(places, sizes, growth, strict=True):
            axes.text(size, place, f"  {digits(size)} {unit}{more}", va="center", fontsize=SMALL)
    longest = max(max(sizes) for sizes in layers.values()) / divisor
    axes.set(yticks=range(len(layers)), yticklabels=list(layers), xlabel=f"memory in {unit}", xlim=(0, 1.38 * longest))
    axes.set_ylim(len(layers) - 0.5, -0.5)
    _legend(axes, 2)
    return figure


def amdahl(rows: Mapping[str, tuple[float, float, float | None]]) -> Figure:
    """Draw the time of a whole model by implementation: convolutions, the rest, and what was measured beside it.

    A bar that is much longer than all others is cut within its convolutions, and says so.

    Args:
        rows: Predicted seconds in convolutions and in everything else, and measured seconds or None.

    Raises:
        KernelError: Nothing to draw, or what is no time.
    """
    check_not_empty(rows, "implementations")
    for name, (inside, rest, measured) in rows.items():
        check_positive(f"time of the convolutions of {name}", inside, least=0)
        check_positive(f"time of the rest of {name}", rest, least=0)
        check_positive(f"time of {name}", inside + rest if measured is None else measured)
    inside = [row[0] for row in rows.values()]
    rest = [row[1] for row in rows.values()]
    cut = [_cut(i, inside) for i in range(len(rows))]
    shown = np.array(inside) - cut
    figure, axes = plt.subplots(figsize=(8.8, 1.2 + 0.55 * len(rows)), dpi=90)
    places = np.arange(len(rows))
    axes.barh(places, shown * 1e3, 0.55, color=SKY, ec="black", lw=0.8, label="convolutions")
    axes.barh(places, np.array(rest) * 1e3, 0.55, left=shown * 1e3, color=ORANGE, hatch="//", ec="black", lw=0.8,
              label="everything else")  # fmt: skip
    # a bar that is cut has no place for what was measured, which its words tell
    marks = {at: row[2] for at, row in enumerate(rows.values()) if row[2] is not None and not cut[at]}
    ends = [max(bar, marks.get(at, 0.0)) for at, bar in enumerate(shown + rest)]
    if marks:
        values = np.array(list(marks.values())) * 1e3
        axes.plot(values, list(marks), "D", color=VERMILION, mec="black", ms=7, label="measured")
    for place, text in enumerate(_speedups(rows)):
        axes.annotate(text, (ends[place] * 1e3, place), (8, 0), textcoords="offset points", va="center", fontsize=SMALL)
        if cut[place]:
            axes.text(shown[place] * 500, place, " / /  cut  / / ", ha="center", va="center", fontsize=SMALL,
                      bbox={"fc": "white", "ec": "none", "pad": 2})  # fmt: skip
    axes.set(yticks=places, yticklabels=list(rows), xlabel="milliseconds", xlim=(0, 1.55e3 * max(ends)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    _legend(axes, 3)
    return figure


def _cut(row: int, inside: Sequence[float]) -> float:
    """Return how much of a row's convolutions is left out so that the others can be seen."""
    longest = max((value for other, value in enumerate(inside) if other != row), default=0.0)
    return inside[row] - 1.3 * longest if longest and inside[row] > _CUT * longest else 0.0


def _speedups(rows: Mapping[str, tuple[float, float, float | None]]) -> list[str]:
    """Return, for each row, its times and how many times as fast as the first it is."""
    first = next(iter(rows.values()))
    told = []
    for inside, rest, measured in rows.values():
        parts = [f"{duration(inside + rest)}, {times((first[0] + first[1]) / (inside + rest))}"]
        if measured is not None:
            faster = "" if first[2] is None else f", {times(first[2] / measured)}"
            parts.append(f"measured {duration(measured)}{faster}")
        told.append("\n".join(parts))
    return told


def inventory(layers: Sequence[tuple[str, float, float, bool]]) -> Figure:
    """Draw a network's convolutions in its order: how much each computes, and how much for each byte.

    Args:
        layers: Name, multiply-accumulates, FLOP per byte, and whether it is one of the chosen ones (C1, C2, ...).

    Raises:
        KernelError: Nothing to draw, or what is no count.
    """
    check_not_empty(layers, "layers")
    for name, macs, intensity, _ in layers:
        check_positive(f"count of {name}", macs)
        check_positive(f"intensity of {name}", intensity)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9.2, 1.0 + 0.22 * len(layers)), dpi=90, sharey=True, width_ratios=(1.5, 1)
    )
    places = range(len(layers))
    chosen = np.array([layer[3] for layer in layers])
    macs, intensities = (np.array([layer[part] for layer in layers], float) for part in (1, 2))
    bars = left.barh(places, macs / 1e6, 0.75, color=LIGHT_GREY, ec="black", lw=0.8)
    right.hlines(places, 0, intensities, color="#aaaaaa", lw=1)
    right.plot(intensities[~chosen], np.flatnonzero(~chosen), "o", color="white", mec="black", ms=5.5)
    right.plot(intensities[chosen], np.flatnonzero(chosen), "s", color=ORANGE, mec="black", ms=7)
    for number, place in enumerate(np.flatnonzero(chosen), 1):
        bars[place].set(facecolor=ORANGE, hatch="//")
        for axes, value in ((left, macs[place] / 1e6), (right, intensities[place])):
            axes.annotate(f"C{number}", (value, place), (7, 0), textcoords="offset points", va="center", fontsize=9,
                          weight="bold")  # fmt: skip
    left.set(xlabel="million multiply-accumulates", xlim=(0, 1.12 * macs.max() / 1e6))
    right.set(xlabel="FLOP per byte", xlim=(0, 1.12 * intensities.max()))
    left.set_yticks(places)
    left.set_yticklabels([layer[0] for layer in layers], fontsize=SMALL)
    left.set_ylim(len(layers) - 0.4, -0.6)
    figure.tight_layout()
    return figure
