"""The picture of fused attention: which blocks of scores a causal kernel computes, and the bytes that fusion saves."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullFormatter, NullLocator

from mlhood.jaxlab.pallas.attention import check_blocks, key_blocks
from mlhood.jaxlab.pallas.traffic import traffic
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import ORANGE, SKY

LENGTHS = (256, 512, 1024, 2048, 4096)


def fused_attention(
    length: int = 512, d: int = 64, *, block_q: int = 64, block_k: int = 64, lengths: Sequence[int] = LENGTHS
) -> Figure:
    """Draw the blocks of a causal kernel's scores, and the bytes of one head without and with fusion.

    Args:
        length: Queries and keys of the left part.
        d: The head dimension.
        block_q: Queries per program, a power of two from 16.
        block_k: Keys per step, a power of two from 16.
        lengths: Queries and keys of the right part's bars, float32.

    Raises:
        XlaError: A block is no power of two from 16.
    """
    check_blocks(block_q, block_k)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 4.2), dpi=90, layout="constrained")
    visited = _blocks(left, length, block_q, block_k)
    factors = _bars(right, lengths, d, block_q, block_k)
    saved = listing((f"{n} keys", f"{factor:.1f} times") for n, factor in factors.items())
    return set_alt_text(
        figure,
        f"Left: {length} by {length} scores in blocks of {block_q} by {block_k}; the causal kernel computes "
        f"{visited[0]} of {visited[1]} blocks, and skips those right of the diagonal. "
        f"Right: bytes of one head by sequence length; the fused kernel moves fewer, by {saved}.",
    )


def _blocks(axes: Axes, length: int, block_q: int, block_k: int) -> tuple[int, int]:
    rows, columns = -(-length // block_q), -(-length // block_k)
    visits = [key_blocks(row, length, True, block_q, block_k) for row in range(rows)]
    for row, column in np.ndindex(rows, columns):
        fill, hatch = (SKY, "") if column < visits[row] else ("white", "..")
        corner = (column * block_k, row * block_q)
        axes.add_patch(Rectangle(corner, block_k, block_q, fc=fill, hatch=hatch, ec="#555555", lw=0.7))
    axes.set(xlim=(0, columns * block_k), ylim=(rows * block_q, 0), aspect="equal", xlabel="key", ylabel="query")
    axes.set_title("one program per row; its loop goes right", fontsize=10)
    shown = [
        Patch(fc=SKY, ec="#555555", label="computed"),
        Patch(fc="white", ec="#555555", hatch="..", label="skipped"),
    ]
    axes.legend(handles=shown, loc="upper right", fontsize=9)
    return sum(visits), rows * columns


def _bars(axes: Axes, lengths: Sequence[int], d: int, block_q: int, block_k: int) -> dict[int, float]:
    counted = {length: traffic(length, length, d, block_q=block_q, block_k=block_k) for length in lengths}
    at = np.arange(len(lengths))
    unfused, fused = ([getattr(each, side) / 1e6 for each in counted.values()] for side in ("unfused", "fused"))
    axes.bar(at - 0.2, unfused, 0.38, color=ORANGE, ec="black", hatch="//", label="three steps")
    axes.bar(at + 0.2, fused, 0.38, color=SKY, ec="black", label="fused")
    for x, height, each in zip(at, unfused, counted.values(), strict=True):
        axes.annotate(f"{each.factor:.1f}x", (x, height), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set(yscale="log", xticks=at, xlabel="queries = keys", ylabel="MB moved per head (log scale)")
    axes.set_xticklabels([str(length) for length in lengths])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"float32, d = {d}, no mask", fontsize=10)
    axes.legend(fontsize=9, loc="upper left")
    return {length: each.factor for length, each in counted.items()}
