"""Reference solutions of P4: the steps of a sliced product, tile loads, and the slicing analysis.

They take plain numbers, as the tasks do; `mlhood.dataflow.slicing` does the same for whole convolutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from mlhood.dataflow.cache.cost import simulated_traffic
from mlhood.dataflow.slicing.analysis import group_sizes
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import predict_all

Triple = tuple[int, int, int]
SIMULATED = 12  # slicings of each order that `choose` simulates
LEVELS = ("L1", "L2", "L3")
STEP = "slice, input tile, weight tile"
SLICE_LOOPS = {"outermost": 0, "second": 1, "third": 2, "innermost": 4}  # of the loops outside it, how many there are
LAYOUT = ("CTP", "FCT", "FP")  # the dimensions of columns, weights and y of `sliced_product`


def steps(
    order: str,
    inputs: int,
    weights: int,
    slices: int,
    k2: int,
    k3: int,
    *,
    step: str = STEP,
    slice_loop: str = "outermost",
) -> list[tuple[int, ...]]:
    """Return (slice, input tile, weight tile) in the order of a sliced convolution.

    Args:
        order: `IS`: input tiles stay and weight tiles pass; `WS`: the reverse.
        inputs: Number of input tiles.
        weights: Number of weight tiles.
        slices: Number of slices of channels.
        k2: Passing tiles per group.
        k3: Staying tiles per group.
        step: What the numbers of a tuple are.
        slice_loop: Which of the five loops is that over the slices (see `SLICE_LOOPS`).
    """
    staying, passing = (inputs, weights) if order == "IS" else (weights, inputs)

    def position(point: tuple[int, int, int]) -> list[int]:
        c, stay, go = point
        loops = [stay // k3, go // k2, stay, go]
        loops.insert(SLICE_LOOPS[slice_loop], c)
        return loops

    points = sorted(product(range(slices), range(staying), range(passing)), key=position)
    names = ("slice", "input tile", "weight tile") if order == "IS" else ("slice", "weight tile", "input tile")
    places = [names.index(name) for name in step.split(", ")]
    return [tuple(point[place] for place in places) for point in points]


def sum_of_steps(
    columns: np.ndarray,
    weights: np.ndarray,
    named: Iterable[Sequence[int]],
    k1: int,
    window: int,
    filters: int,
    dtype: type = np.float32,
) -> np.ndarray:
    """Return y [F, P], to which the products of these steps (slice, input tile, weight tile) are added in their order.

    Args:
        columns: float32 [C, T, P], by channels, kernel positions and windows.
        weights: float32 [F, C, T], by filters, channels and kernel positions.
        named: The steps.
        k1: Channels of a slice.
        window: Windows of an input tile.
        filters: Filters of a weight tile.
        dtype: Of the sums.
    """
    y = np.zeros((len(weights), columns.shape[2]), dtype)
    for c, i, f in named:
        depth, p, q = (slice(at * size, (at + 1) * size) for at, size in ((c, k1), (i, window), (f, filters)))
        y[q, p] += np.einsum("fct,ctp->fp", weights[q, depth], columns[depth, :, p])
    return y


def laid_out(array: np.ndarray, given: str, wanted: str) -> np.ndarray:
    """Return an array whose dimensions are in another order, such as `FCT` as `CTF`: a copy if it is another."""
    return np.ascontiguousarray(array.transpose([given.index(name) for name in wanted]))


def loads(
    staying: int, passing: int, k2: int, k3: int, counted: str = "the tiles loaded"
) -> dict[str, tuple[int, int]]:
    """Return how many stationary and streamed tiles are loaded into each level for one slice.

    A level loads what it holds whenever the loop that needs it starts an iteration: L1 one stationary tile in each
    iteration over the stationary tiles of a group, and one streamed tile in each step; L2 the same stationary tile,
    and k2 tiles with each group of streamed tiles; L3 these, and k3 tiles with each group of stationary tiles.

    With another `counted`, see `traffic.COUNTED`: the loads but the first one of each tile, or those of each tile.
    """
    groups2, groups3 = -(-passing // k2), -(-staying // k3)
    of_each = {"L1": (groups2, staying), "L2": (groups2, groups3), "L3": (1, groups3)}
    if counted == "the loads of each tile":
        return of_each
    first = 1 if counted == "the tiles loaded again" else 0
    return {level: (staying * (stay - first), passing * (go - first)) for level, (stay, go) in of_each.items()}


def needs(order: str, k1: int, k2: int, k3: int, sizes: Mapping[str, int], *, next_tile: str = "") -> Triple:
    """Return the bytes that a slicing needs in L1, L2 and L3 (Ferrari et al., 2023, section 3).

    Args:
        order: `IS` or `WS`.
        k1: Channels of a tile.
        k2: Passing tiles.
        k3: Staying tiles.
        sizes: Bytes: "input" and "weight" of one channel of a tile, "output" of an output tile.
        next_tile: The kind of tile of which each level holds one more: `streamed`, `stationary`, `output` or none.
    """
    stay, go = (sizes["input"], sizes["weight"]) if order == "IS" else (sizes["weight"], sizes["input"])
    stay, go, out = stay * k1, go * k1, sizes["output"]
    more = {"": 0, "streamed": go, "stationary": stay, "output": out}[next_tile]
    return more + stay + go + out, more + stay + k2 * (go + out), more + k3 * stay + k2 * go + k2 * k3 * out


def needs_by(*args: Any, keys: tuple[str | int, ...], **options: Any) -> Triple | dict[str | int, int]:
    """Return what `needs` returns, as a dictionary with these keys, or as a tuple if there are none."""
    triple = needs(*args, **options)
    return dict(zip(keys, triple, strict=True)) if keys else triple


def largest(
    order: str,
    channels: int,
    passing: int,
    staying: int,
    sizes: Mapping[str, int],
    rooms: tuple[float, float, float],
    *,
    next_tile: str = "",
    search: str = "",
) -> Triple:
    """Return (k1, k2, k3): each starts with all there are and is halved until its level fits.

    With another `search` (see `slicing.SEARCH`), each starts with the largest power of two, or is made smaller by one.

    Raises:
        ValueError: Not even one fits.
    """
    tiles = [1, 1, 1]
    for level, most in enumerate((channels, passing, staying)):
        tiles[level] = 1 << (most.bit_length() - 1) if "power of two" in search else most
        while needs(order, tiles[0], tiles[1], tiles[2], sizes, next_tile=next_tile)[level] > rooms[level]:
            tiles[level] = tiles[level] - 1 if "takes one" in search else tiles[level] // 2
            if not tiles[level]:
                raise ValueError(f"not even the smallest tiles fit into {LEVELS[level]}")
    return tiles[0], tiles[1], tiles[2]


def choose(
    problem: Problem, caches: Caches, order: Order | None = None, *, every_k1: bool = True
) -> tuple[Order, int, int, int]:
    """Return the order, k1, k2 and k3 with the least simulated traffic, of those with the least predicted traffic.

    If an order is given, there is no other.

    The prediction is for caches that are filled completely. Of group sizes that give as many groups, only the smallest
    is a candidate (see `slicing.analysis`); of k1, too, unless `every_k1`.
    """
    full = replace(caches, fill=1.0)
    orders = (order,) if order else ORDERS
    slicings = [slicing for order in orders for slicing in _promising(problem, order, full, every_k1)]
    best = min(slicings, key=lambda slicing: simulated_traffic(problem, slicing, caches))
    return best.order, *best.tiles


def _promising(problem: Problem, order: Order, caches: Caches, every_k1: bool) -> list[Slicing]:
    """Return the slicings of an order with the least predicted traffic, legal or not."""
    streamed, stationary = counts(problem, order)
    first = np.arange(1, problem.channels + 1) if every_k1 else group_sizes(problem.channels)
    axes = (first, group_sizes(streamed), group_sizes(stationary))
    k1, k2, k3 = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    predicted = predict_all(problem, order, k1, k2, k3, caches)
    served = (predicted.l2, predicted.l3, predicted.memory)
    cycles = sum(latency * lines for latency, lines in zip(caches.latencies[1:], served, strict=True))
    best = np.argsort(cycles, kind="stable")[:SIMULATED]
    return [Slicing(order, int(k1[i]), int(k2[i]), int(k3[i])) for i in best]
