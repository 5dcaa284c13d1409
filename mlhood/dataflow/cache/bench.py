"""Benchmark of the simulator for one convolution: its speed, and predicted against simulated cache lines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mlhood.dataflow.cache.hierarchy import Hierarchy, HitCounts, Level
from mlhood.dataflow.cache.nest import simulate
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.problem import ORDERS, Problem, Slicing
from mlhood.dataflow.slicing.traffic import lines_into
from mlhood.errors import CacheError

PAPER = Problem(256, 32, (3, 3), (75, 75), window=16, filter_tile=8)
_MIN_WAYS = 8
_REPEATS = 3


@dataclass(frozen=True)
class Run:
    """The simulation of one order.

    Args:
        slicing: What the analysis chooses in this order.
        predicted: Lines into each level.
        hits: What the simulator counted.
        rate: Accesses per second of the fastest repeat.
    """

    slicing: Slicing
    predicted: tuple[int, ...]
    hits: HitCounts
    rate: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "slicing": str(self.slicing),
            "predicted": dict(zip(LEVELS, self.predicted, strict=True)),
            "simulated": dict(zip(LEVELS, self.hits.into, strict=True)),
            "accesses": self.hits.accesses,
            "per_second": self.rate,
        }


def ways(size: int, line: int) -> int:
    """Return the fewest ways, at least 8, for which the number of sets is a power of two."""
    lines = size // line
    count = lines // (lines & -lines)
    while count < _MIN_WAYS and count < lines:
        count *= 2
    return count


def hierarchy(caches: Caches) -> Hierarchy:
    """Return empty caches of these sizes.

    Raises:
        CacheError: If a size is not known.
    """
    sizes = [size for size in caches.sizes if size is not None]
    if len(sizes) < len(LEVELS):
        todo = "declare them: --caches 32KiB,1MiB,4MiB"
        raise CacheError("the sizes of all levels are needed", expected=", ".join(LEVELS), got=str(caches), todo=todo)
    return Hierarchy([Level(size, ways(size, caches.line)) for size in sizes], caches.line)


def runs(caches: Caches, problem: Problem = PAPER) -> list[Run]:
    """Simulate a convolution in both orders."""
    results, candidates = [], analyse(problem, caches).candidates
    full = Caches(caches.sizes, 1.0, caches.line, caches.latencies)
    for order in ORDERS:
        slicing, _ = candidates[order]
        predicted = tuple(int(lines_into(problem, order, *slicing.tiles, size, caches.line)) for size in full.rooms)
        repeats = [_timed(problem, slicing, caches) for _ in range(_REPEATS)]
        hits = repeats[0][0]
        results.append(Run(slicing, predicted, hits, hits.accesses / min(seconds for _, seconds in repeats)))
    return results


def _timed(problem: Problem, slicing: Slicing, caches: Caches) -> tuple[HitCounts, float]:
    """Simulate from empty caches, and return the hits and the seconds it took."""
    empty = hierarchy(caches)
    start = time.perf_counter()
    hits = simulate(problem, slicing, empty)
    return hits, time.perf_counter() - start
