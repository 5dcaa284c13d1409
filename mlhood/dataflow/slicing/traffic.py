"""Which level of the caches serves the loads of a sliced convolution, predicted.

The nest, for the kind of tile that stays in L1 (input for IS, weights for WS) and the kind that passes by:

    for each slice of k1 channels:
        for each group of k3 staying tiles:
            for each group of k2 passing tiles:
                for each staying tile of its group:
                    for each passing tile of its group:
                        sums of this pair += staying * passing

A tile that is used again is still in a cache if what was used in between fits into it (Mattson, Gecsei, Slutz and
Traiger, Evaluation Techniques for Storage Hierarchies, 1970: the stack distance under LRU). So each kind of tile is
loaded into a cache once for each round of the outermost loop over which it does not survive there. Ferrari et al.'s
equations 1 to 6 are this for slicings that just fit. Groups that are not full count as full ones. All counts may be
NumPy arrays of candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import Order, Problem, Slicing, channel_bytes, counts


@dataclass(frozen=True)
class Traffic:
    """Loads that each level serves: numbers from L1, cache lines from below.

    Args:
        l1: Loads served by L1, when each multiply-add loads two numbers.
        l2: Cache lines that come from L2.
        l3: From L3.
        memory: From memory.
        cycles: All of them, weighted by the levels' latencies.
    """

    l1: Any
    l2: Any
    l3: Any
    memory: Any
    cycles: Any

    def as_dict(self) -> dict[str, int]:
        """Return plain data."""
        return {"L1": self.l1, "L2": self.l2, "L3": self.l3, "memory": self.memory, "cycles": self.cycles}


def predict(problem: Problem, slicing: Slicing, caches: Caches) -> Traffic:
    """Return what each level serves."""
    found = predict_all(problem, slicing.order, *slicing.tiles, caches)
    return Traffic(*(int(count) for count in (found.l1, found.l2, found.l3, found.memory, found.cycles)))


def predict_all(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any, caches: Caches) -> Traffic:
    """Return what each level serves, for arrays of sizes that broadcast."""
    into = [lines_into(problem, order, k1, k2, k3, room, caches.line) for room in caches.rooms]
    loads = 2 * problem.macs
    # tiles that are hardly filled bring more lines than their multiply-adds load numbers
    served = (np.maximum(loads - into[0], 0), into[0] - into[1], into[1] - into[2], into[2])
    cycles = sum(latency * count for latency, count in zip(caches.latencies, served, strict=True))
    return Traffic(*served, cycles)


def lines_into(problem: Problem, order: Order, k1: Any, k2: Any, k3: Any, room: float, line: int) -> Any:
    """Return how many cache lines are loaded into a cache that keeps `room` bytes."""
    passing_count, staying_count = counts(problem, order)
    passing, staying = channel_bytes(problem, order)
    slices = _ceil(problem.channels, k1)
    kept = _Kept(problem, order, k1, k2, k3, room, line)
    staying_loads = staying_count * np.where(kept.staying_for_group, 1, np.where(kept.staying_for_tile, kept.groups2,
                                                                                passing_count))  # fmt: skip
    passing_loads = passing_count * np.where(kept.passing_for_slice, 1, np.where(kept.passing_for_group, kept.groups3,
                                                                                staying_count))  # fmt: skip
    output_loads = passing_count * staying_count * np.where(kept.outputs, 1, slices)
    return (
        staying_loads * _lines(problem.channels, k1, staying, line)
        + passing_loads * _lines(problem.channels, k1, passing, line)
        + output_loads * math.ceil(problem.output_bytes / line)
    )


class _Kept:
    """What survives in a cache from one use to the next: the lines in between against its room.

    Between two uses of a passing tile the staying tile changes, so two of them count, and likewise for groups.
    """

    def __init__(self, problem: Problem, order: Order, k1: Any, k2: Any, k3: Any, room: float, line: int) -> None:
        passing_count, staying_count = counts(problem, order)
        passing, staying = (_ceil(each * k1, line) * line for each in channel_bytes(problem, order))
        out = _ceil(problem.output_bytes, line) * line
        self.groups2, self.groups3 = _ceil(passing_count, k2), _ceil(staying_count, k3)
        one_pair = staying + passing + out
        one_row = np.where(np.equal(k2, 1), one_pair, 2 * staying + k2 * (passing + out))
        # a group of one staying tile meets the next group of passing tiles at once
        one_block = np.where(np.equal(k3, 1), one_pair, k3 * staying + 2 * k2 * passing + k2 * k3 * out)
        # with one group of passing tiles, the next group of staying tiles comes at once
        all_groups = np.where(np.equal(self.groups2, 1), one_row,
                              2 * k3 * staying + passing_count * (passing + k3 * out))  # fmt: skip
        # of the kind that the outermost loop walks along, the tiles behind and those ahead make one set
        both = staying_count * staying + passing_count * passing
        along_passing = np.equal(self.groups3, 1) & (np.greater(self.groups2, 1) | (staying_count == 1))
        again = np.where(along_passing, staying_count * staying, passing_count * passing)
        whole_slice = both + again + passing_count * staying_count * out
        self.staying_for_tile, self.staying_for_group = one_pair <= room, one_block <= room
        self.passing_for_group, self.passing_for_slice = one_row <= room, all_groups <= room
        self.outputs = np.equal(_ceil(problem.channels, k1), 1) | (whole_slice <= room)


def _ceil(count: Any, size: Any) -> Any:
    return -(-count // size)


def _lines(channels: int, k1: Any, channel: int, line: int) -> Any:
    """Return the cache lines of all slices of one tile; the last slice may have fewer channels."""
    rest = channels % k1
    return channels // k1 * _ceil(k1 * channel, line) + _ceil(rest * channel, line)
