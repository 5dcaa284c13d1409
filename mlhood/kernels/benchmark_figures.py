"""Figures of measurements: ladder, baselines, whole models, a network's layers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from mlhood.measure.ratio import Ratio
from mlhood.measure.units import digits, duration, rate, times
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import (
    COLOURS,
    DARK,
    DASHES,
    HATCHES,
    LIGHT_GREY,
    LINE_COLOURS,
    MARKERS,
    MUTED,
    ORANGE,
    SKY,
    VERMILION,
)

_REFERENCE = "blas"
_RUNGS = ("naive", "reordered", "blocked", "packed", "vectorised", "gemm_fast")  # each has its style in all figures
WIDTH, TEXT = 6.4, 9.5  # inches and points: text stays legible where a page is narrow
_FACTORS = (0.25, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 32, 64)
_CUT = 3  # a bar this many times longer than all others is broken


def ladder(rates: Mapping[str, Mapping[int, float]], peak: float) -> Figure:
    """Plot each rung's share of the peak over the size of the matrices; "blas", the reference, is the thick grey line.

    Args:
        rates: FLOP/s by n, by rung: {"naive": {64: 2e9, 128: 1.5e9}, "blas": {...}}.
        peak: FLOP/s of the machine.
    """
    shares = {name: {n: line[n] / peak for n in sorted(line)} for name, line in rates.items()}
    sizes = sorted({n for line in shares.values() for n in line})
    figure, axes = plt.subplots(figsize=(WIDTH, 4.6), dpi=90, layout="constrained")
    top = max(1.06, 1.06 * max(share for line in shares.values() for share in line.values()))
    axes.set(xlabel="n, for matrices of n × n", ylabel="share of the peak", ylim=(0, top))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.set_xlim(sizes[0] / 1.15, sizes[-1] * 1.15)
    axes.grid(visible=True, axis="y", color="#dddddd", lw=0.6)
    axes.axhline(1, color=DARK, lw=1.6)
    axes.text(0.01, 1.006, f"peak: {rate(peak)}", transform=axes.get_yaxis_transform(), va="bottom", fontsize=TEXT)
    others = [name for name in shares if name != _REFERENCE]
    for name, i in _styles(others).items():
        style = {"color": LINE_COLOURS[i], "marker": MARKERS[i], "ls": DASHES[i], "mew": 0.6}
        axes.plot(list(shares[name]), list(shares[name].values()), lw=1.8, ms=6.5, mec="black", zorder=3, **style)
    if _REFERENCE in shares:
        axes.plot(list(shares[_REFERENCE]), list(shares[_REFERENCE].values()), color="#aaaaaa", lw=6, zorder=2)
    _label_ends(axes, shares, top)
    lines = []
    for name, line in shares.items():
        first, last = min(line), max(line)
        lines.append(f"{name}: {line[first]:.1%} at n = {first}, {line[last]:.1%} at n = {last}")
    return set_alt_text(
        figure, f"Line chart of the share of the peak, {rate(peak)}, by size of the matrices.", "; ".join(lines) + "."
    )


def _styles(names: Sequence[str]) -> dict[str, int]:
    """Return the number of each name's style: a rung's place on the ladder, or the place among these names."""
    return {name: _RUNGS.index(name) if name in _RUNGS else i % 6 for i, name in enumerate(names)}


def _label_ends(axes: Axes, shares: Mapping[str, Mapping[int, float]], top: float) -> None:
    """Write each line's name to the right of the axes, at the height of its last point and clear of the others."""
    ends = {name: (max(line), line[max(line)]) for name, line in shares.items()}
    gap = 14 / (4.0 * 72) * top  # a line of text in axes about four inches high
    heights = spread_apart([share for _, share in ends.values()], gap, 0.0, top)
    leader = {"arrowstyle": "-", "color": MUTED, "lw": 0.8, "ls": ":", "shrinkB": 4}
    font: dict[str, Any] = {"va": "center", "fontsize": 9.5, "annotation_clip": False, "arrowprops": leader}
    right = axes.get_yaxis_transform()
    for (name, (n, share)), y in zip(ends.items(), heights, strict=True):
        weight = "bold" if name == _REFERENCE else "normal"
        axes.annotate(f"{name}  {share:.1%}", (n, share), (1.03, y), textcoords=right, weight=weight, **font)


def spread_apart(values: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move values to be at least `gap` apart, preserving their order, within [low, high]."""
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


def baselines(rates: Mapping[str, Mapping[str, tuple[float, float, float]]], peak: float) -> Figure:
    """Draw a bar per implementation for each layer, with an error bar, and the peak as a line.

    Args:
        rates: Rate and the ends of its error bar in FLOP/s, by implementation, by layer.
        peak: FLOP/s of the machine.
    """
    names = list(dict.fromkeys(name for row in rates.values() for name in row))
    figure, axes = plt.subplots(figsize=(WIDTH, 1.5 + len(rates) * (0.25 * len(names) + 0.2)), dpi=90)
    high = 0.86 / len(names)
    longest = max(peak, *(value[2] for row in rates.values() for value in row.values())) / 1e9
    styles = _styles(names)
    for i, name in enumerate(names):
        colour, hatch = (LIGHT_GREY, "") if name == _REFERENCE else (COLOURS[styles[name]], HATCHES[styles[name]])
        measured = {index: row[name] for index, row in enumerate(rates.values()) if name in row}
        y = [index - 0.43 + (i + 0.5) * high for index in measured]
        middle, left, right = np.array(list(measured.values())).T / 1e9
        axes.barh(y, middle, high, color=colour, hatch=hatch, ec="black", lw=0.8, label=name)
        errors = middle - left, right - middle
        axes.errorbar(middle, y, xerr=errors, fmt="none", ecolor="white", capsize=4, capthick=3.5, lw=3.5)
        axes.errorbar(middle, y, xerr=errors, fmt="none", ecolor=DARK, capsize=3, lw=1.2)
        patch = {"fc": "white", "ec": "none", "pad": 0.8}
        for at, value, end in zip(y, middle, right, strict=True):
            x = end if end < longest / 2 else 0  # inside a long bar: there, the line of the peak does not cross it
            _label_bar(axes, f"{digits(value)}  ({value * 1e9 / peak:.0%})", (x, at), 5, bbox=patch)
    axes.set(yticks=range(len(rates)), xlabel="GFLOP/s (share of the peak)")
    axes.set_yticklabels(rates, fontsize=9)
    axes.set_xlim(0, 1.04 * longest)
    axes.set_ylim(len(rates) - 0.5, -0.5)
    axes.axvline(peak / 1e9, color=DARK, lw=1.8, ls="--", label=f"peak: {rate(peak)}", zorder=0)
    _legend(axes, len(names) + 1)
    bars = [
        f"{layer}: {listing((name, digits(value / 1e9)) for name, (value, *_) in row.items())}"
        for layer, row in rates.items()
    ]
    return set_alt_text(figure, f"Bar chart of GFLOP/s. {'; '.join(bars)}. The machine's peak is {rate(peak)}.")


def _label_bar(axes: Axes, text: str, end: tuple[float, float], distance: float, **font: Any) -> None:
    """Write text to the right of a bar's end, at a distance in points."""
    style = {"textcoords": "offset points", "va": "center", "fontsize": TEXT} | font
    axes.annotate(text, end, (distance, 0), **style)


def _legend(axes: Axes, entries: int) -> None:
    """Put the legend above the axes, and fit both into the figure."""
    position = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": min(entries, 3)}
    axes.legend(frameon=False, fontsize=TEXT, handlelength=2, **position)
    figure = axes.get_figure(root=True)
    if figure is not None:
        figure.tight_layout()


def ratios(layers: Mapping[str, Mapping[str, Ratio]]) -> Figure:
    """Plot the ratio of other kernels' times to that of the direct kernel, with confidence intervals, layer by layer.

    Args:
        layers: By layer and name of another kernel: its time divided by that of the direct kernel.
    """
    names = list(dict.fromkeys(name for row in layers.values() for name in row))
    figure, axes = plt.subplots(figsize=(WIDTH, 1.4 + 0.32 * len(layers)), dpi=90, layout="constrained")
    axes.set(xscale="log", yticks=range(len(layers)), yticklabels=list(layers), ylim=(len(layers) - 0.4, -0.6))
    axes.set_xlabel("time of the other / time of direct:\nright of the line, direct is faster")
    for y in range(1, len(layers), 2):
        axes.axhspan(y - 0.5, y + 0.5, color="#f4f4f4", zorder=0)
    for i, name in enumerate(names):
        shift = 0.22 * (i - (len(names) - 1) / 2)
        _plot_baseline(axes, i, name, {y + shift: row[name] for y, row in enumerate(layers.values())})
    axes.axvline(1, color=DARK, lw=1.4)
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in _FACTORS if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, axis="x", color="#dddddd", lw=0.6)
    axes.tick_params(axis="y", labelsize=TEXT)
    figure.legend(loc="outside upper center", fontsize=TEXT)
    return set_alt_text(
        figure,
        f"Times of other kernels divided by those of direct, with their intervals, for {len(layers)} layers.",
        "; ".join(_summary([row[name] for row in layers.values()], name) for name in names) + ".",
    )


def _summary(ratios: Sequence[Ratio], name: str) -> str:
    values = [ratio.value for ratio in ratios]
    spread = f"{digits(min(values))} to {digits(max(values))}, geometric mean {statistics.geometric_mean(values):.2f}"
    wins, shown = sum(value > 1 for value in values), sum(ratio.low > 1 for ratio in ratios)
    return f"{name}: {spread}, above 1 in {wins} of {len(ratios)}, with the whole interval in {shown}"


def _plot_baseline(axes: Axes, i: int, name: str, ratios: Mapping[float, Ratio]) -> None:
    values, low, high = np.array([(ratio.value, ratio.low, ratio.high) for ratio in ratios.values()]).T
    style: dict[str, Any] = {"fmt": MARKERS[i % 6], "color": LINE_COLOURS[i % 6], "ms": 5.5, "elinewidth": 1.2}
    label = f"{name} (geometric mean {statistics.geometric_mean(values):.2f})"
    bars = axes.errorbar(values, list(ratios), xerr=(values - low, high - values), capsize=2, label=label, **style)
    bars.lines[0].set(markeredgecolor="black", markeredgewidth=0.6)


def amdahl(rows: Mapping[str, tuple[float, float, float]]) -> Figure:
    """Draw the predicted time of a whole model by implementation, split by Amdahl's law, and the measured time.

    A bar that is much longer than all others is broken within its convolutions, and labelled so.

    Args:
        rows: Predicted seconds in convolutions and in everything else, and measured seconds.
    """
    convolutions = [row[0] for row in rows.values()]
    other = np.array([row[1] for row in rows.values()])
    # how much of a row's convolutions is not drawn, so that the other rows remain visible
    longest = [max(convolutions[:i] + convolutions[i + 1 :], default=0.0) for i in range(len(rows))]
    omitted = [t - 1.3 * other if 0 < _CUT * other < t else 0.0 for t, other in zip(convolutions, longest, strict=True)]
    shown = np.array(convolutions) - omitted
    figure, axes = plt.subplots(figsize=(WIDTH, 1.2 + 0.65 * len(rows)), dpi=90)
    y = np.arange(len(rows))
    style: dict[str, Any] = {"ec": "black", "lw": 0.8}
    axes.barh(y, shown * 1e3, 0.55, color=SKY, label="convolutions", **style)
    axes.barh(y, other * 1e3, 0.55, left=shown * 1e3, color=ORANGE, hatch="//", label="everything else", **style)
    # the measured time of a broken bar is off the scale; its label states it
    measured = {i: row[2] for i, row in enumerate(rows.values()) if not omitted[i]}
    ends = [max(bar, measured.get(i, 0.0)) for i, bar in enumerate(shown + other)]
    values = np.array(list(measured.values())) * 1e3
    axes.plot(values, list(measured), "D", color=VERMILION, mec="black", ms=7, label="measured")
    patch = {"fc": "white", "ec": "none", "pad": 2}
    for i, text in enumerate(_speedups(rows)):
        _label_bar(axes, text, (0 if ends[i] > 0.5 * max(ends) else ends[i] * 1e3, i), 8)  # where there is room
        if omitted[i]:
            axes.text(shown[i] * 800, i, " / /  cut  / / ", ha="center", va="center", fontsize=TEXT, bbox=patch)
    axes.set(yticks=y, yticklabels=list(rows), xlabel="milliseconds", xlim=(0, 1.1e3 * max(ends)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    _legend(axes, 3)
    bars = [
        f"{name}: {', '.join(label.splitlines())}, of which convolutions {duration(row[0])}"
        for (name, row), label in zip(rows.items(), _speedups(rows), strict=True)
    ]
    return set_alt_text(figure, f"Bar chart of the predicted and measured time of the whole model. {'; '.join(bars)}.")


def _speedups(rows: Mapping[str, tuple[float, float, float]]) -> list[str]:
    """Return each row's label: its times, and their speed-ups over the first row."""
    first = next(iter(rows.values()))
    labels = []
    for convolutions, other, measured in rows.values():
        total = convolutions + other
        predicted = f"{duration(total)}, {times((first[0] + first[1]) / total)}"
        labels.append(f"{predicted}\nmeasured {duration(measured)}, {times(first[2] / measured)}")
    return labels


def inventory(layers: Sequence[tuple[str, float, float, bool]]) -> Figure:
    """Draw a network's convolutions in order: operations, and arithmetic intensity.

    Args:
        layers: Name, multiply-accumulates, FLOP per byte, and whether the layer is selected (C1, C2, ...).
    """
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(WIDTH, 1.0 + 0.24 * len(layers)), dpi=90, sharey=True, width_ratios=(1.5, 1)
    )
    y = range(len(layers))
    selected = np.array([layer[3] for layer in layers])
    macs, intensities = (np.array([layer[part] for layer in layers], float) for part in (1, 2))
    bars = left.barh(y, macs / 1e6, 0.75, color=LIGHT_GREY, ec="black", lw=0.8)
    right.hlines(y, 0, intensities, color="#aaaaaa", lw=1)
    right.plot(intensities[~selected], np.flatnonzero(~selected), "o", color="white", mec="black", ms=5.5)
    right.plot(intensities[selected], np.flatnonzero(selected), "s", color=ORANGE, mec="black", ms=7)
    for number, i in enumerate(np.flatnonzero(selected).tolist(), 1):
        bars[i].set(facecolor=ORANGE, hatch="//")
        for axes, value in ((left, macs[i] / 1e6), (right, intensities[i])):
            _label_bar(axes, f"C{number}", (value, i), 7, fontsize=9, weight="bold")
    left.set(xlabel="million multiply-accumulates", xlim=(0, 1.12 * macs.max() / 1e6))
    right.set(xlabel="FLOP per byte", xlim=(0, 1.25 * intensities.max()))
    left.set_yticks(y)
    left.set_yticklabels([layer[0] for layer in layers], fontsize=TEXT)
    left.set_ylim(len(layers) - 0.4, -0.6)
    figure.tight_layout()
    values = [
        (f"C{number}", f"{digits(macs[i] / 1e6)} and {digits(intensities[i])}")
        for number, i in enumerate(np.flatnonzero(selected).tolist(), 1)
    ]
    return set_alt_text(
        figure,
        f"Million multiply-accumulates and FLOP per byte of {len(layers)} convolutions in order, from",
        f"{digits(macs.min() / 1e6)} to {digits(macs.max() / 1e6)} and from {digits(intensities.min())} to",
        f"{digits(intensities.max())}.",
        f"Selected: {listing(values)}." if values else "",
    )
