"""Prediction of the cache level that serves each load of a sliced convolution.

The nest, for the kind of tile that is stationary in L1 (input for IS, weights for WS) and the kind that is streamed:

    for each slice of k1 channels:
        for each group of k3 stationary tiles:
            for each group of k2 streamed tiles:
                for each stationary tile of its group:
                    for each streamed tile of its group:
                        sums of this pair += stationary * streamed

A tile that is reused is still in a cache if what was used in between fits into it (Mattson, Gecsei, Slutz and Traiger,
Evaluation Techniques for Storage Hierarchies, 1970: the stack distance under LRU). So each kind of tile is loaded into
a cache once per iteration of the outermost loop across which it is not retained. Ferrari et al.'s equations 1 to 6 are
this for slicings that just fit. Partial groups count as full ones. All counts may be NumPy arrays of candidates.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import Order, Problem, Slicing, channel_bytes, counts


@dataclass(frozen=True)
class Traffic:
    """Loads that each level serves: elements from L1, cache lines from below.

    Args:
        l1: Loads that L1 serves, at two loads per multiply-add.
        l2: Cache lines that L2 serves.
        l3: Cache lines that L3 serves.
        memory: Cache lines that memory serves.
        cycles: Their sum, weighted by the levels' latencies.
    """

    l1: Any
    l2: Any
    l3: Any
    memory: Any
    cycles: Any


def predict(problem: Problem, slicing: Slicing, caches: Caches) -> Traffic:
    """Return what each level serves."""
    traffic = predict_all(problem, slicing.order, *slicing.tiles, caches)
    return Traffic(*(int(count) for count in astuple(traffic)))


def predict_all(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any, caches: Caches) -> Traffic:
    """Return what each level serves, for arrays of sizes that broadcast."""
    into = [lines_into(problem, order, k1, k2, k3, capacity, caches.line) for capacity in caches.rooms]
    loads = 2 * problem.macs
    # mostly empty tiles load more lines than their multiply-adds load elements
    served = (np.maximum(loads - into[0], 0), into[0] - into[1], into[1] - into[2], into[2])
    cycles = sum(latency * count for latency, count in zip(caches.latencies, served, strict=True))
    return Traffic(*served, cycles)


def lines_into(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any, capacity: float, line: int) -> Any:
    """Return how many cache lines are loaded into a cache of `capacity` bytes."""
    n_streamed, n_stationary = counts(problem, order)
    streamed, stationary = channel_bytes(problem, order)
    slices, groups2, groups3 = _ceil(problem.channels, k1), _ceil(n_streamed, k2), _ceil(n_stationary, k3)
    distance = _reuse_distances(problem, order, k1, k2, k3, line)
    per_stationary = np.where(distance.pair <= capacity, groups2, n_streamed)
    per_streamed = np.where(distance.row <= capacity, groups3, n_stationary)
    stationary_loads = n_stationary * np.where(distance.block <= capacity, 1, per_stationary)
    streamed_loads = n_streamed * np.where(distance.groups <= capacity, 1, per_streamed)
    retained = np.equal(slices, 1) | (distance.slice <= capacity)
    output_loads = n_streamed * n_stationary * np.where(retained, 1, slices)
    return (
        stationary_loads * _lines(problem.channels, k1, stationary, line)
        + streamed_loads * _lines(problem.channels, k1, streamed, line)
        + output_loads * math.ceil(problem.output_bytes / line)
    )


@dataclass(frozen=True)
class _ReuseDistances:
    """Bytes of the cache lines used between two uses of a tile, that tile included.

    Args:
        pair: From one streamed tile to the next, for the stationary tile.
        row: From one stationary tile to the next, for a streamed tile.
        block: From one group of streamed tiles to the next, for a stationary tile.
        groups: From one group of stationary tiles to the next, for a streamed tile.
        slice: From one slice of channels to the next, for the sums of a pair.
    """

    pair: Any
    row: Any
    block: Any
    groups: Any
    slice: Any


def _reuse_distances(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any, line: int) -> _ReuseDistances:
    """Between two uses of a streamed tile the stationary tile changes, so two of them count; so it is for groups."""
    n_streamed, n_stationary = counts(problem, order)
    streamed, stationary = (_ceil(size * k1, line) * line for size in channel_bytes(problem, order))
    out = _ceil(problem.output_bytes, line) * line
    groups2, groups3 = _ceil(n_streamed, k2), _ceil(n_stationary, k3)
    pair = stationary + streamed + out
    row = np.where(np.equal(k2, 1), pair, 2 * stationary + k2 * (streamed + out))
    # in a group of one stationary tile, the next group of streamed tiles follows immediately
    block = np.where(np.equal(k3, 1), pair, k3 * stationary + 2 * k2 * streamed + k2 * k3 * out)
    # with one group of streamed tiles, the next group of stationary tiles follows immediately
    several = 2 * k3 * stationary + n_streamed * (streamed + k3 * out)
    groups = np.where(np.equal(groups2, 1), row, several)
    # of the kind that the outermost loop iterates over, tiles used in this slice and in the last one both count
    once = n_stationary * stationary + n_streamed * streamed
    along_streamed = np.equal(groups3, 1) & (np.greater(groups2, 1) | (n_stationary == 1))
    again = np.where(along_streamed, n_stationary * stationary, n_streamed * streamed)
    return _ReuseDistances(pair, row, block, groups, once + again + n_streamed * n_stationary * out)


def _ceil(count: Any, size: Any) -> Any:
    return -(-count // size)


def _lines(channels: int, k1: Any, channel: int, line: int) -> Any:
    """Return the cache lines of all slices of one tile; the last slice may have fewer channels."""
    return channels // k1 * _ceil(k1 * channel, line) + _ceil(channels % k1 * channel, line)
