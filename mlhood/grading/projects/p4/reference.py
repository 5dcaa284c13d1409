"""The solutions that the checks of P4 compare with: steps of a sliced product, loads, and the slicing analysis.

They take plain numbers, as the tasks do; `mlhood.dataflow.slicing` has the same for whole convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, counts

Triple = tuple[int, int, int]
LEVELS = ("L1", "L2", "L3")


def steps(order: str, inputs: int, weights: int, slices: int, k2: int, k3: int) -> list[Triple]:
    """Return (slice, input tile, weight tile) in the order in which a sliced convolution meets them.

    Args:
        order: `IS`: input tiles stay and weight tiles pass by; `WS`: the reverse.
        inputs: Input tiles.
        weights: Weight tiles.
        slices: Slices of channels.
        k2: Passing tiles of a group.
        k3: Staying tiles of a group.
    """
    staying, passing = (inputs, weights) if order == "IS" else (weights, inputs)
    pairs = [
        (stays, passes)
        for group3 in range(0, staying, k3)
        for group2 in range(0, passing, k2)
        for stays in range(group3, min(group3 + k3, staying))
        for passes in range(group2, min(group2 + k2, passing))
    ]
    if order != "IS":
        pairs = [(passes, stays) for stays, passes in pairs]
    return [(number, i, f) for number in range(slices) for i, f in pairs]


def sliced_product(
    columns: np.ndarray, weights: np.ndarray, order: str, k1: int, k2: int, k3: int, window: int, filters: int
) -> np.ndarray:
    """Return y [F, P], float32, added up step by step.

    Args:
        columns: float32 [C, T, P]: channels, places of the kernel, windows.
        weights: float32 [F, C, T].
        order: As for `steps`.
        k1: Channels of a slice.
        k2: As for `steps`.
        k3: As for `steps`.
        window: Windows of an input tile.
        filters: Filters of a weight tile.
    """
    y = np.zeros((len(weights), columns.shape[2]), np.float32)
    inputs, some, slices = -(-columns.shape[2] // window), -(-len(weights) // filters), -(-len(columns) // k1)
    for number, i, f in steps(order, inputs, some, slices, k2, k3):
        c, p, q = (slice(at * size, (at + 1) * size) for at, size in ((number, k1), (i, window), (f, filters)))
        y[q, p] += np.einsum("fct,ctp->fp", weights[q, c], columns[c, :, p])
    return y


def loads(staying: int, passing: int, k2: int, k3: int) -> dict[str, tuple[int, int]]:
    """Return how many staying and passing tiles come into each level for one slice.

    A level fetches what it holds when the loop that needs it begins a round: L1 one staying tile in each round of the
    loop over the staying tiles of a group, and one passing tile in each step; L2 the same staying tile, and the k2
    tiles of a group with each group of passing tiles; L3 these, and k3 tiles with each group of staying tiles.
    """
    groups2, groups3 = -(-passing // k2), -(-staying // k3)
    return {
        "L1": (staying * groups2, staying * passing),
        "L2": (staying * groups2, passing * groups3),
        "L3": (staying, passing * groups3),
    }


def needs(order: str, k1: int, k2: int, k3: int, sizes: Mapping[str, int]) -> Triple:
    """Return the bytes that a slicing takes of L1, L2 and L3 (Ferrari et al., 2023, section 3).

    Args:
        order: `IS` or `WS`.
        k1: Channels of a tile.
        k2: Passing tiles.
        k3: Staying tiles.
        sizes: Bytes: "input" and "weight" of one channel of a tile, "output" of an output tile.
    """
    stays, passes = (sizes["input"], sizes["weight"]) if order == "IS" else (sizes["weight"], sizes["input"])
    stays, passes, out = stays * k1, passes * k1, sizes["output"]
    return stays + passes + out, stays + k2 * (passes + out), k3 * stays + k2 * passes + k2 * k3 * out


def largest(
    order: str, channels: int, passing: int, staying: int, sizes: Mapping[str, int], rooms: tuple[float, float, float]
) -> Triple:
    """Return (k1, k2, k3): each starts with all there is and is halved until its level fits.

    Raises:
        ValueError: Not even one fits.
    """
    found = [1, 1, 1]
    for level, most in enumerate((channels, passing, staying)):
        found[level] = most
        while needs(order, found[0], found[1], found[2], sizes)[level] > rooms[level]:
            found[level] //= 2
            if not found[level]:
                raise ValueError(f"not even the smallest tiles fit into {LEVELS[level]}")
    return found[0], found[1], found[2]


def triples(analysed: Mapping[Order, Triple], problem: Problem, caches: Caches) -> dict[str, dict[Order, Triple]]:
    """Return the tiles of each row of the table, by order: the smallest slices, and all there is, beside the analysis.

    Args:
        analysed: By order.
        problem: What is sliced.
        caches: What "too large" would break if they were small enough; all there is needs no look at them.
    """
    rows: dict[str, dict[Order, Triple]] = {"analysed": dict(analysed), "too small": {}, "too large": {}, "my own": {}}
    for order in ORDERS:
        k1, k2, k3 = analysed[order]
        passing, staying = counts(problem, order)
        rows["too small"][order] = 1, k2, k3
        rows["too large"][order] = problem.channels, passing, staying
        rows["my own"][order] = max(1, k1 // 2), max(1, k2 // 2), max(1, k3 // 2)
    return rows
