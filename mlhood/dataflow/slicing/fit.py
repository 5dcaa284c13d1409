"""The bytes that a slicing occupies in each cache, and whether they fit.

With the stationary tile (input for IS, weights for WS), the streamed tiles, and one output tile per pair:

    L1: stationary + streamed + out
    L2: stationary + k2 * (streamed + out)
    L3: k3 * stationary + k2 * streamed + k2 * k3 * out

(Ferrari et al., 2023, section 3.) The sizes may be NumPy arrays of candidates.
"""

from __future__ import annotations

from typing import Any

from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.problem import Order, Problem, Slicing, channel_bytes, counts
from mlhood.errors import SlicingError
from mlhood.measure.machine import binary_size


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
