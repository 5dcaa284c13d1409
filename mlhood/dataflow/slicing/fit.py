"""What a slicing takes of each cache, and whether it fits.

With the tile that stays (input for IS, weights for WS), those that pass by, and one output tile for each pair:

    L1: stay + pass + out
    L2: stay + k2 * (pass + out)
    L3: k3 * stay + k2 * pass + k2 * k3 * out

(Ferrari et al., 2023, section 3.) The sizes may be NumPy arrays of candidates.
"""

from __future__ import annotations

from typing import Any

from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.problem import Order, Problem, Slicing, channel_bytes, counts
from mlhood.errors import SlicingError
from mlhood.measure.machine import binary_size


def needs(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any) -> tuple[Any, Any, Any]:
    """Return the bytes that a slicing takes of L1, L2 and L3."""
    passing, staying = (each * k1 for each in channel_bytes(problem, order))
    out = problem.output_bytes
    return staying + passing + out, staying + k2 * (passing + out), k3 * staying + k2 * passing + k2 * k3 * out


def check(problem: Problem, slicing: Slicing, caches: Caches) -> None:
    """Refuse a slicing that is not legal.

    Raises:
        SlicingError: If a size is out of range, or a cache too small; it says which, and by how much.
    """
    most = (problem.channels, *counts(problem, slicing.order))
    if any(not 1 <= size <= limit for size, limit in zip(slicing.tiles, most, strict=True)):
        raise SlicingError(
            "these tiles are not there", where=slicing, got=slicing.tiles,
            expected=f"k1 in 1..{most[0]} channels, k2 in 1..{most[1]} tiles, k3 in 1..{most[2]} tiles",
        )  # fmt: skip
    needed = needs(problem, slicing.order, *slicing.tiles)
    broken = [
        f"{name} needs {need:,} bytes, {need - int(room):,} more than {int(room):,} ({binary_size(size)} "
        f"filled to {caches.fill:g})"
        for name, need, room, size in zip(LEVELS, needed, caches.rooms, caches.sizes, strict=True)
        if need > room
    ]
    if broken:
        raise SlicingError(
            f"these tiles do not fit into {' and '.join(line[:2] for line in broken)}", where=slicing,
            expected=f"tiles that fit into {caches}", got="; ".join(broken),
            todo="take fewer channels (k1) for L1, fewer tiles for L2 (k2) or L3 (k3), or let the analysis choose",
        )  # fmt: skip
