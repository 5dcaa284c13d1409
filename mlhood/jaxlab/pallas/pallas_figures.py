"""The picture of fused attention: which blocks of scores a causal kernel computes, and the bytes that fusion saves.

The bytes between the chip and its memory are counted: step by step, and fused as in the kernel's grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullFormatter, NullLocator

from mlhood.jaxlab.pallas.attention import key_blocks
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import ORANGE, SKY

LENGTHS = (256, 512, 1024, 2048, 4096)
_LENGTH, _DEPTH, _BLOCK = 512, 64, 64  # queries and keys on the left; the head dimension; queries and keys a block


def fused_attention() -> Figure:
    """Draw the blocks of a causal kernel's scores, and the bytes of one head of float32 without and with fusion."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 4.2), dpi=90, layout="constrained")
    visited = _blocks(left)
    factors = _bars(right)
    saved = listing((f"{n} keys", f"{factor:.1f} times") for n, factor in factors.items())
    return set_alt_text(
        figure,
        f"Left: {_LENGTH} by {_LENGTH} scores in blocks of {_BLOCK} by {_BLOCK}; the causal kernel computes "
        f"{visited[0]} of {visited[1]} blocks, and skips those right of the diagonal. "
        f"Right: bytes of one head by sequence length; the fused kernel moves fewer, by {saved}.",
    )


def _blocks(axes: Axes) -> tuple[int, int]:
    side = _LENGTH // _BLOCK
    visits = [key_blocks(row, _LENGTH, True, _BLOCK, _BLOCK) for row in range(side)]
    for row, column in np.ndindex(side, side):
        fill, hatch = (SKY, "") if column < visits[row] else ("white", "..")
        corner = (column * _BLOCK, row * _BLOCK)
        axes.add_patch(Rectangle(corner, _BLOCK, _BLOCK, fc=fill, hatch=hatch, ec="#555555", lw=0.7))
    axes.set(xlim=(0, _LENGTH), ylim=(_LENGTH, 0), aspect="equal", xlabel="key", ylabel="query")
    axes.set_title("one program per row; its loop goes right", fontsize=10)
    shown = [
        Patch(fc=SKY, ec="#555555", label="computed"),
        Patch(fc="white", ec="#555555", hatch="..", label="skipped"),
    ]
    axes.legend(handles=shown, loc="upper right", fontsize=9)
    return sum(visits), side * side


def _bars(axes: Axes) -> dict[int, float]:
    counted = {length: traffic(length, length, _DEPTH, block_q=_BLOCK, block_k=_BLOCK) for length in LENGTHS}
    at = np.arange(len(LENGTHS))
    unfused, fused = ([getattr(each, side) / 1e6 for each in counted.values()] for side in ("unfused", "fused"))
    axes.bar(at - 0.2, unfused, 0.38, color=ORANGE, ec="black", hatch="//", label="three steps")
    axes.bar(at + 0.2, fused, 0.38, color=SKY, ec="black", label="fused")
    for x, height, each in zip(at, unfused, counted.values(), strict=True):
        axes.annotate(f"{each.factor:.1f}x", (x, height), (0, 3), textcoords="offset points", ha="center", fontsize=9)
    axes.set(yscale="log", xticks=at, xlabel="queries = keys", ylabel="MB moved per head (log scale)")
    axes.set_xticklabels([str(length) for length in LENGTHS])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"float32, d = {_DEPTH}, no mask", fontsize=10)
    axes.legend(fontsize=9, loc="upper left")
    return {length: each.factor for length, each in counted.items()}


@dataclass(frozen=True)
class AttentionTraffic:
    """Bytes read and written by one head of attention, as if nothing stayed in a cache between steps.

    Args:
        unfused: In three steps: scores q k^T, their softmax, the product with v. Scores and weights are written by one
            step and read by the next. The softmax is counted as one read and one write: as by a good separate kernel.
        fused: By blocks: each block of queries is read once, its result written once, and keys and values are read
            again for each block of queries that sees them.
    """

    unfused: int
    fused: int

    @property
    def factor(self) -> float:
        """How many times fewer bytes the fused kernel moves."""
        return self.unfused / self.fused


def traffic(queries: int, keys: int, d: int, *, block_q: int = 64, block_k: int = 64) -> AttentionTraffic:
    """Count the bytes of one head in float32, without a mask; the fused kernel reads whole blocks.

    Args:
        queries: The number of queries.
        keys: The number of keys.
        d: The head dimension.
        block_q: Queries per block.
        block_k: Keys per block.
    """
    scores = queries * keys
    unfused = queries * d + keys * d + scores + 2 * scores + scores + keys * d + queries * d
    blocks = -(-queries // block_q)
    visits = blocks * -(-keys // block_k)
    fused = 2 * blocks * block_q * d + 2 * visits * block_k * d
    return AttentionTraffic(4 * unfused, 4 * fused)
