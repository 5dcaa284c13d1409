"""Figures for P2: the pipeline, memory traffic, quantisation grids, and the loss per layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import (
    BLUE,
    GREEN,
    LIGHT_BLUE,
    LIGHT_GREEN,
    LIGHT_YELLOW,
    ORANGE,
    SKY,
    VERMILION,
    arrow,
    box,
    canvas,
)

BARS = 120  # of a histogram
HATCHES = ("", "//", "..", "xx", "\\\\", "oo")


def pipeline() -> Figure:
    """Draw the stages of the compiler and their results."""
    figure, axes = canvas(10.0, 2.1)
    stages = (
        ("lenet.onnx", "the file", LIGHT_YELLOW),
        ("HIR", "the graph\nas imported", LIGHT_BLUE),
        ("optimised HIR", "folded\nand fused", LIGHT_BLUE),
        ("quantised HIR", "integers\nof 8 bits", LIGHT_BLUE),
        ("LIR", "instructions,\nmemory plan", LIGHT_GREEN),
        ("machine code", "CPU, neural\nprocessor (NMP)", LIGHT_GREEN),
    )
    steps = ("import", "passes", "quantise", "lower", "generate")
    for i, (name, description, colour) in enumerate(stages):
        box(axes, 1.7 * i, 0.6, 1.25, 1.1, "", colour)
        axes.text(1.7 * i + 0.625, 1.38, name, ha="center", va="center", fontsize=9.5, weight="bold")
        axes.text(1.7 * i + 0.625, 0.92, description, ha="center", va="center", fontsize=8.5)
    for i, step in enumerate(steps):
        arrow(axes, (1.7 * i + 1.27, 1.15), (1.7 * i + 1.68, 1.15))
        axes.text(1.7 * i + 1.475, 1.85, step, ha="center", fontsize=9, style="italic")
    for x, text in ((0.625, "from P1"), (4.025, "the first half"), (8.275, "the second half")):
        axes.text(x, 0.25, text, ha="center", fontsize=9, color="#333333")
    for half in ([1.7, 6.35], [6.8, 9.75]):
        axes.plot(half, [0.45, 0.45], color="#333333", lw=1)
    results = "; ".join(f"{step}: {name}" for step, (name, *_) in zip(steps, stages[1:], strict=True))
    return set_alt_text(
        figure,
        f"The steps of the compiler and their results, from {stages[0][0]}: {results}.",
        "The first half of the notebook goes up to the quantised HIR, the second half to machine code.",
    )


def traffic(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """Plot elements read and written as stacked bars: {"two loop nests": {"x, w, b read": 10, ...}, ...}."""
    figure, axes = plt.subplots(figsize=(6.4, 2.2), dpi=90)
    left = dict.fromkeys(counts, 0)
    parts = dict.fromkeys(part for bars in counts.values() for part in bars)
    for part, colour, hatch in zip(parts, (SKY, ORANGE, GREEN, VERMILION), HATCHES, strict=False):
        sizes = [bars.get(part, 0) for bars in counts.values()]
        axes.barh(list(counts), sizes, left=list(left.values()), color=colour, hatch=hatch, ec="black", label=part)
        left = {name: left[name] + size for name, size in zip(left, sizes, strict=True)}
    axes.invert_yaxis()
    axes.set(xlabel="elements")
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.45, 1.3), frameon=False, fontsize=8.5)
    figure.tight_layout()
    text = "; ".join(f"{name}: {listing(bars)}, {sum(bars.values())} in total" for name, bars in counts.items())
    return set_alt_text(figure, f"Stacked bars of elements read and written. {text}.")


def grids(counts: np.ndarray, edges: np.ndarray, parameters: Mapping[str, tuple[float, int]], title: str) -> Figure:
    """Plot a histogram of a value, and below it the real values that each schema's 256 integers represent.

    Args:
        counts: [bins], number of elements.
        edges: [bins + 1], edges of the bins.
        parameters: Scale and offset by the schema's name.
        title: Title of the figure.
    """
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(6.4, 4.2), dpi=90, sharex=True, height_ratios=(3, 0.55 + 0.45 * len(parameters))
    )
    firsts = np.arange(0, len(counts), -(-len(counts) // BARS))  # wide enough to be seen
    top.stairs(np.add.reduceat(counts, firsts), [*edges[firsts], edges[-1]], fill=True, fc=SKY, ec="#224455")
    top.set(yscale="symlog", ylim=(0, None), ylabel="count", title=title)
    low, high = edges[0], edges[-1]
    uses = {}
    for row, (name, (scale, offset)) in enumerate(parameters.items()):
        reals = scale * (np.arange(-128, 128) - offset)
        bottom.vlines(reals[::4], row - 0.3, row + 0.3, color=BLUE, lw=0.7)
        bottom.plot([0, 0], [row - 0.42, row + 0.42], color=VERMILION, lw=2)
        used = np.mean((reals >= low - scale / 2) & (reals <= high + scale / 2))
        bottom.set_xlim(min(bottom.get_xlim()[0], reals[0]), max(bottom.get_xlim()[1], reals[-1]))
        uses[name] = f"{used:.0%} used, step {scale:.3g}"
        label = uses[name].replace(", ", "\n")
        bottom.text(1.01, row, label, transform=bottom.get_yaxis_transform(), va="center", fontsize=8)
    bottom.set(yticks=range(len(parameters)), yticklabels=list(parameters), xlabel="real value")
    bottom.set_ylim(len(parameters) - 0.4, -0.6)
    key = "thin lines: every fourth integer; thick line: 0"
    bottom.text(0.0, 1.0, key, transform=bottom.transAxes, fontsize=8, va="bottom")
    figure.tight_layout()
    return set_alt_text(
        figure,
        f"Histogram of {title}, from {low:.3g} to {high:.3g}, above the 256 integers of each schema.",
        "; ".join(f"{name}: {use}" for name, use in uses.items()) + ".",
    )


def compared(exact: np.ndarray, approximation: np.ndarray, step: float) -> Figure:
    """Show two images [H, W] and their difference in quantisation steps."""
    figure, grid = plt.subplots(1, 3, figsize=(6.4, 2.4), dpi=90)
    difference = (approximation - exact) / step
    limits = {"vmin": min(exact.min(), approximation.min()), "vmax": max(exact.max(), approximation.max())}
    for axes, image, title in ((grid[0], exact, "float32"), (grid[1], approximation, "integers,\ndequantised")):
        figure.colorbar(axes.imshow(image, cmap="cividis", **limits), ax=axes, shrink=0.75)
        axes.set_title(title, fontsize=9)
    figure.colorbar(grid[2].imshow(difference, cmap="PuOr", vmin=-1.5, vmax=1.5), ax=grid[2], shrink=0.75)
    grid[2].set_title(f"difference in steps,\nat most {np.abs(difference).max():.2f}", fontsize=9)
    for axes in grid:
        axes.set(xticks=[], yticks=[])
    figure.tight_layout()
    return set_alt_text(
        figure,
        f"Three images of {' x '.join(map(str, exact.shape))} pixels: in float32, from integers, and",
        f"their difference, which is at most {np.abs(difference).max():.2f} steps of the quantised output.",
    )


def waterfall(layers: Sequence[str], cumulative: Sequence[float], alone: Sequence[float]) -> Figure:
    """Plot the signal-to-quantisation-noise ratio after each layer: each step down is the loss of one layer (dB).

    Args:
        layers: Names in execution order.
        cumulative: SQNR after each layer, with all layers quantised.
        alone: SQNR at the output if only this layer is quantised; infinite values, without loss, are not drawn.
    """
    alone = [value if np.isfinite(value) else np.nan for value in alone]
    figure, axes = plt.subplots(figsize=(6.4, 4.0), dpi=90)
    floor = 5 * np.floor((np.nanmin([*cumulative, *alone]) - 4) / 5)
    for x in (0, len(layers) - 1):
        label = "all layers quantised" if x else None
        axes.bar(x, cumulative[x] - floor, 0.6, floor, color=SKY, ec="black", label=label)
        axes.text(x, floor + 0.5, f"{cumulative[x]:.1f}", ha="center", va="bottom", fontsize=9, weight="bold")
    labels = {ORANGE: "loss", GREEN: "gain"}
    for x, (before, after) in enumerate(pairwise(cumulative), 1):
        bottom, height = min(before, after), abs(after - before)
        colour, hatch = (ORANGE, "//") if after <= before else (GREEN, "..")
        axes.plot([x - 1 + 0.3, x + 0.3], [before, before], color="black", lw=0.8)
        axes.bar(x, height, 0.6, bottom, color=colour, ec="black", hatch=hatch, label=labels.pop(colour, None))
        axes.text(x, bottom - 0.4, f"{after - before:+.1f}", ha="center", va="top", fontsize=8.5)
    xs = np.arange(len(layers))
    axes.plot(xs, alone, "D", color=VERMILION, ms=6, mec="black", label="at the output, only this layer quantised")
    axes.set(ylabel="SQNR in dB", ylim=(floor, np.nanmax([*cumulative, *alone]) + 3))
    axes.set_xticks(xs, layers, rotation=30, ha="right", fontsize=8.5)
    axes.legend(frameon=False, fontsize=8.5, ncols=2, loc="lower left", bbox_to_anchor=(-0.05, 1))
    figure.tight_layout()
    cumulative_text, alone_text = (
        listing((name, f"{value:.1f}") for name, value in zip(layers, values, strict=True) if np.isfinite(value))
        for values in (cumulative, alone)
    )
    return set_alt_text(
        figure,
        f"Waterfall chart of the SQNR in dB after each layer, all quantised: {cumulative_text}.",
        f"At the output, only this layer quantised: {alone_text}.",
    )


def speedups(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw how many times as fast as in its first type each network is in its others, with 95 % intervals.

    Args:
        rows: Of each network and type, with the keys "network", "type", "ms" and "speed-up", a `Ratio`.
    """
    networks: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        networks.setdefault(row["network"], []).append(row)
    figure, axes = plt.subplots(figsize=(6.4, 3.0), dpi=90, layout="constrained")
    types = list(dict.fromkeys(row["type"] for row in rows))[1:]
    for i, (kind, colour, hatch) in enumerate(zip(types, (SKY, ORANGE, GREEN), HATCHES, strict=False)):
        bars = [(y, row) for y, group in enumerate(networks.values()) for row in group if row["type"] == kind]
        ys = [y + 0.38 * (i - (len(types) - 1) / 2) for y, _ in bars]
        values, low, high = np.array([(r.value, r.low, r.high) for r in (row["speed-up"] for _, row in bars)]).T
        axes.barh(ys, values, 0.36, color=colour, hatch=hatch, ec="black", lw=0.8, label=kind)
        axes.errorbar(values, ys, xerr=(values - low, high - values), fmt="none", ecolor="black", capsize=3, lw=1.2)
        for y, end, value, (_, row) in zip(ys, high, values, bars, strict=True):
            place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(f"{value:.2f}x  ({row['ms']} ms)", (max(end, 1), y), fontsize=8.5, **place)
    axes.axvline(1, color="black", lw=1.4)
    labels = [f"{name}\n{group[0]['type']}: {group[0]['ms']} ms" for name, group in networks.items()]
    axes.set_yticks(range(len(networks)), labels, fontsize=9)
    axes.set(xlim=(0, 1.35 * max(row["speed-up"].high for row in rows)), ylim=(len(networks) - 0.5, -0.5))
    axes.set_xlabel("times as fast as in float32: right of the line, integers win")
    figure.legend(loc="outside upper center", ncols=len(types), frameon=False, fontsize=9)
    text = listing((f"{row['network']}, {row['type']}", f"{row['speed-up'].value:.2f}") for row in rows)
    return set_alt_text(figure, f"Bar chart of how many times as fast networks are in integers: {text}.")


def parameters_of(
    low: float, high: float, names: Sequence[str], choose: Callable[[float, float, str], tuple[float, int]]
) -> dict[str, tuple[float, int]]:
    """Return the scale and offset that `choose(low, high, schema)` returns for each schema."""
    return {name: (float(scale), int(offset)) for name in names for scale, offset in [choose(low, high, name)]}
