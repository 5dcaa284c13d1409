"""Figures for P1: the digits, the training loss, filters, the features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mlhood.plotting.alt_text import listing, set_alt_text

# by digit, each with a contrast of at least 4.5:1 to white
DIGIT_COLOURS = ("#1f5fa8", "#a8510c", "#1e7d1e", "#b8201f", "#6a4ba0")
DIGIT_COLOURS += ("#6b4035", "#a3307f", "#555555", "#6b6b00", "#0b7480")


def digits(images: Any, titles: Sequence[str], columns: int = 5, what: str = "handwritten digits") -> Figure:
    """Show images [N, 1, 32, 32] in rows, each with its title; `what` they are is in the alternative text."""
    captions = "; ".join(title.replace("\n", ", ") for title in titles)
    alt = f"{len(titles)} {what} in rows of {columns}, with the captions: {captions}."
    return _pictures([np.asarray(image)[0] for image in images], titles, columns, alt, cmap="gray_r")


def filters(weights: np.ndarray, image: np.ndarray, maps: np.ndarray) -> Figure:
    """Show up to eight filters [F, KH, KW], and below each its map [F, H, W] of an image: positive numbers red."""
    count = min(len(weights), 8)
    figure, grid = plt.subplots(2, 1 + count, figsize=(1.4 * (1 + count), 3.1), dpi=80)
    for axes in grid.flat:
        axes.axis("off")
    grid[1, 0].imshow(image, cmap="gray_r")
    for row, pictures in zip(grid, (weights, maps), strict=True):
        limit = np.abs(pictures).max()
        for axes, picture in zip(row[1:], pictures, strict=False):
            axes.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    for number, axes in enumerate(grid[0, 1:]):
        axes.set_title(f"filter {number}", fontsize=10)
    figure.tight_layout(pad=0.3)
    rows = (f"{f}: {' / '.join(' '.join(f'{w:.1f}' for w in row) for row in weights[f])}" for f in range(count))
    alt = "Filters of a convolution, positive weights red, negative ones blue; below each, what it makes of an image. "
    return set_alt_text(figure, f"{alt}Row by row, filter {'; '.join(rows)}.")


def _pictures(images: Any, titles: Sequence[str], columns: int, alt: str, **style: Any) -> Figure:
    rows = max(1, -(-len(titles) // columns))
    size = columns * 1.15, rows * (1.45 + 0.2 * ("\n" in "".join(titles)))
    figure, grid = plt.subplots(rows, columns, figsize=size, dpi=80, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, title in zip(grid.flat, images, titles, strict=False):
        axes.imshow(image, **style)
        axes.set_title(title, fontsize=10)
    figure.tight_layout(pad=0.3)
    return set_alt_text(figure, alt)


def losses(values: Sequence[float]) -> Figure:
    """Plot the mean loss of each epoch on a logarithmic axis."""
    figure, axes = plt.subplots(figsize=(6, 2.8), dpi=90)
    axes.semilogy(range(1, len(values) + 1), [float(value) for value in values], marker="o", color="#0072b2")
    axes.set(xlabel="epoch", ylabel="mean loss (cross entropy)", title="Training LeNet")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    ends = f": from {float(values[0]):.3g} in the first to {float(values[-1]):.3g} in the last" if len(values) else ""
    return set_alt_text(figure, f"Line chart of the mean loss in {len(values)} epochs of training{ends}.")


def shares(table: Any) -> Figure:
    """Plot each operator type's share of all parameters and of all multiply-accumulates."""
    sums = table.groupby("op")[["parameters", "macs"]].sum().astype(float)
    sums = (sums / sums.sum())[(sums > 0).any(axis=1)]
    figure, axes = plt.subplots(figsize=(6.5, 2.3), dpi=90)
    left = np.zeros(2)
    names = ["parameters", "multiply-\naccumulates"]
    styles = (("#56b4e9", ""), ("#e69f00", "//"), ("#009e73", ".."))
    for (op, row), (colour, hatch) in zip(sums.iterrows(), styles, strict=False):
        axes.barh(names, row, left=left, color=colour, hatch=hatch, ec="black", label=op)
        left += row.to_numpy()
    axes.set(xlim=(0, 1), xlabel="share of the whole network")
    axes.invert_yaxis()
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.4), frameon=False)
    figure.tight_layout()
    parameters, macs = (listing((op, f"{share:.1%}") for op, share in sums[what].items()) for what in sums)
    return set_alt_text(
        figure,
        "Stacked bars of each operator type's share of the whole network.",
        f"Parameters: {parameters}. Multiply-accumulates: {macs}.",
    )


def readers(found: Mapping[str, tuple[int, float]], joined: Sequence[str]) -> Figure:
    """Plot readers by the numbers that they store and the share that they read correctly, and join some by a line."""
    figure, axes = plt.subplots(figsize=(6.5, 3.2), dpi=90, layout="constrained")
    axes.plot(*zip(*(found[name] for name in joined), strict=True), color="#888888", zorder=1)
    for name, (numbers, share) in found.items():
        axes.scatter(numbers, share, color="#888888" if name in joined else "#d55e00", zorder=2)
        axes.annotate(name, (numbers, share), xytext=(6, -12), textcoords="offset points", fontsize=9)
    axes.set(xscale="log", xlabel="numbers in the file", ylabel="read correctly")
    axes.margins(x=0.3, y=0.2)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid(visible=True, alpha=0.3)
    points = listing((name, f"{share:.1%} with {numbers:,} numbers") for name, (numbers, share) in found.items())
    return set_alt_text(figure, f"Share of digits read correctly by the numbers that a file stores: {points}.")


def feature_map(features: Any, labels: Any) -> Figure:
    """Plot features [N, D] projected onto their first two principal axes; each image is drawn as its digit."""
    centred = np.asarray(features) - np.mean(features, axis=0)
    _, _, axes_of_variance = np.linalg.svd(centred, full_matrices=False)
    # The sign of a principal axis is arbitrary: fix it, so that the figure is the same on every machine.
    signs = np.sign(axes_of_variance[np.arange(2), np.abs(axes_of_variance[:2]).argmax(axis=1)])
    points = centred @ (axes_of_variance[:2] * signs[:, None]).T
    figure, axes = plt.subplots(figsize=(6, 4.6), dpi=90)
    for (x, y), label in zip(points, labels, strict=True):
        axes.text(x, y, str(int(label)), color=DIGIT_COLOURS[int(label)], fontsize=10, ha="center", va="center")
    shares = [alike_neighbours(space, np.asarray(labels)) for space in (points, centred)]
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.06 * (high - low)
    axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    axes.set(
        xlabel="first principal axis",
        ylabel="second",
        title=f"{shares[0]:.0%} have one of their own kind as the nearest neighbour;\n"
        f"along all {centred.shape[1]} directions, {shares[1]:.1%} do",
    )
    figure.tight_layout()
    return set_alt_text(
        figure,
        f"Scatter plot of {len(points)} images, each drawn as its digit, along two principal axes of their features.",
        f"Equal digits form clusters: {shares[0]:.0%} have one of their own kind as the nearest neighbour, "
        f"{shares[1]:.1%} along all directions, of which two are drawn.",
    )


def alike_neighbours(points: np.ndarray, labels: np.ndarray, most: int = 1000) -> float:
    """Return the share of points [N, D] whose nearest neighbour has the same label, among at most `most`."""
    points, labels = points[:most], labels[:most]
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(distances, np.inf)
    return float(np.mean(labels[distances.argmin(axis=1)] == labels))
