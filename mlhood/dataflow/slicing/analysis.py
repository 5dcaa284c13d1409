"""The slicing analysis: from a convolution and the caches to (k1, k2, k3) and the order.

1. k1 starts with all channels, k2 and k3 with all full tiles.
2. Each is halved until its level holds what it must: L1 for k1, then L2 for k2, then L3 for k3.
3. The order whose loads are predicted to take fewer cycles is chosen; IS if both take as many.

With the stationary tile (input for IS, weights for WS), the streamed tiles, and one output tile per pair, the levels
must hold these bytes:

    L1: stationary + streamed + out
    L2: stationary + k2 * (streamed + out)
    L3: k3 * stationary + k2 * streamed + k2 * k3 * out

(Ferrari et al., 2023, section 3.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, channel_bytes, counts
from mlhood.dataflow.slicing.traffic import Traffic, predict
from mlhood.errors import SlicingError
from mlhood.measure.machine import binary_size


@dataclass(frozen=True)
class Analysis:
    """The result of the analysis.

    Args:
        problem: What is sliced.
        caches: For which caches.
        slicing: The choice.
        candidates: The slicing and the predicted traffic of each order.
    """

    problem: Problem
    caches: Caches
    slicing: Slicing
    candidates: dict[Order, tuple[Slicing, Traffic]]

    @property
    def traffic(self) -> Traffic:
        """The predicted traffic of the choice."""
        return self.candidates[self.slicing.order][1]


def analyse(problem: Problem, caches: Caches) -> Analysis:
    """Choose how to slice a convolution.

    Raises:
        SlicingError: If the smallest tiles do not fit.
    """
    candidates: dict[Order, tuple[Slicing, Traffic]] = {}
    for order in ORDERS:
        slicing = largest(problem, order, caches)
        candidates[order] = slicing, predict(problem, slicing, caches)
    best = min(ORDERS, key=lambda order: candidates[order][1].cycles)
    return Analysis(problem, caches, candidates[best][0], candidates)


def largest(problem: Problem, order: Order, caches: Caches) -> Slicing:
    """Return the largest slicing of an order that halving reaches.

    Raises:
        SlicingError: If the smallest tiles do not fit.
    """
    first, second, third = caches.rooms
    streamed, stationary = _full_tiles(problem, order)
    k1 = _halve(problem.channels, lambda k: needs(problem, order, k, 1, 1)[0] <= first, LEVELS[0], problem, caches)
    k2 = _halve(streamed, lambda k: needs(problem, order, k1, k, 1)[1] <= second, LEVELS[1], problem, caches)
    k3 = _halve(stationary, lambda k: needs(problem, order, k1, k2, k)[2] <= third, LEVELS[2], problem, caches)
    return Slicing(order, k1, k2, k3)


def _full_tiles(problem: Problem, order: Order) -> tuple[int, int]:
    """Return the number of full streamed and stationary tiles, at least one of each."""
    inputs, weights = problem.windows // problem.window, problem.filters // problem.filter_tile
    if problem.rows is not None:
        inputs = problem.input_tiles
    streamed, stationary = (weights, inputs) if order == "IS" else (inputs, weights)
    return max(1, streamed), max(1, stationary)


def _halve(start: int, fits: Callable[[int], bool], level: str, problem: Problem, caches: Caches) -> int:
    size = start
    while size and not fits(size):
        size //= 2
    if not size:
        todo = "take a smaller register tile (window, filter_tile), or declare larger caches"
        raise SlicingError(f"not even the smallest tiles fit into {level}", where=problem, got=caches, todo=todo)
    return size


def group_sizes(count: int) -> np.ndarray:
    """Return the smallest group size for each number of groups that `count` tiles can be divided into."""
    sizes = np.arange(1, count + 1)
    groups = -(-count // sizes)
    return sizes[np.flatnonzero(np.diff(groups, prepend=count + 1))]


# -- the bytes that a slicing occupies in each cache, and whether they fit


def needs(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any) -> tuple[Any, Any, Any]:
    """Return the bytes that a slicing occupies in L1, L2 and L3."""
    streamed, stationary = (size * k1 for size in channel_bytes(problem, order))
    out = problem.output_bytes
    second, third = stationary + k2 * (streamed + out), k3 * stationary + k2 * streamed + k2 * k3 * out
    return stationary + streamed + out, second, third


def check(problem: Problem, slicing: Slicing, caches: Caches) -> None:
    """Check that a slicing is legal.

    Raises:
        SlicingError: If a size is out of range, or a cache too small; it says which, and by how much.
    """
    limits = (problem.channels, *counts(problem, slicing.order))
    if any(not 1 <= size <= limit for size, limit in zip(slicing.tiles, limits, strict=True)):
        expected = f"k1 in 1..{limits[0]} channels, k2 in 1..{limits[1]} tiles, k3 in 1..{limits[2]} tiles"
        raise SlicingError("tile sizes out of range", where=slicing, expected=expected, got=slicing.tiles)
    needed = needs(problem, slicing.order, *slicing.tiles)
    exceeded = {
        name: f"{name} needs {used:,} bytes, {used - int(capacity):,} more than {int(capacity):,} ({binary_size(size)} "
        f"filled to {caches.fill:g})"
        for name, used, capacity, size in zip(LEVELS, needed, caches.rooms, caches.sizes, strict=True)
        if used > capacity
    }
    if exceeded:
        raise SlicingError(
            f"these tiles do not fit into {' and '.join(exceeded)}",
            where=slicing,
            expected=f"tiles that fit into {caches}",
            got="; ".join(exceeded.values()),
            todo="take fewer channels (k1) for L1, fewer tiles for L2 (k2) or L3 (k3), or let the analysis choose",
        )
