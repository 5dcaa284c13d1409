"""How fast the simulator is, and how far predicted and simulated lines are apart, for one convolution."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mlhood.dataflow.cache.hierarchy import CacheError, Hierarchy, Level, Served
from mlhood.dataflow.cache.nest import simulate
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.problem import ORDERS, Problem, Slicing
from mlhood.dataflow.slicing.traffic import lines_into

PAPER = Problem(256, 32, (3, 3), (75, 75), window=16, filter_tile=8)
_FEWEST_WAYS = 8
_RUNS = 3


@dataclass(frozen=True)
class Run:
    """One order, simulated.

    Args:
        slicing: What the analysis chooses in this order.
        predicted: Lines into each level.
        served: What the simulator counted.
        rate: Accesses a second, of the fastest run.
    """

    slicing: Slicing
    predicted: tuple[int, ...]
    served: Served
    rate: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"slicing": str(self.slicing), "predicted": dict(zip(LEVELS, self.predicted, strict=True)),
                "simulated": dict(zip(LEVELS, self.served.into, strict=True)),
                "accesses": self.served.accesses, "per_second": self.rate}  # fmt: skip


def ways(size: int, line: int) -> int:
    """Return the fewest ways, from 8 on, with which the number of sets is a power of two."""
    lines = size // line
    count = lines // (lines & -lines)
    while count < _FEWEST_WAYS and count < lines:
        count *= 2
    return count


def hierarchy(caches: Caches) -> Hierarchy:
    """Return empty caches of these sizes.

    Raises:
        CacheError: If a size is not known.
    """
    sizes = [size for size in caches.sizes if size is not None]
    if len(sizes) < len(LEVELS):
        raise CacheError("the sizes of all levels are needed", expected=", ".join(LEVELS), got=str(caches),
                         todo="declare them: --caches 32KiB,1MiB,4MiB")  # fmt: skip
    return Hierarchy([Level(size, ways(size, caches.line)) for size in sizes], caches.line)


def runs(caches: Caches, problem: Problem = PAPER) -> list[Run]:
    """Simulate a convolution in both orders."""
    found, chosen = [], analyse(problem, caches).candidates
    full = Caches(caches.sizes, 1.0, caches.line, caches.latencies)
    for order in ORDERS:
        slicing, _ = chosen[order]
        predicted = tuple(int(lines_into(problem, order, *slicing.tiles, room, caches.line)) for room in full.rooms)
        timed = [_timed(problem, slicing, caches) for _ in range(_RUNS)]
        served = timed[0][0]
        found.append(Run(slicing, predicted, served, served.accesses / min(seconds for _, seconds in timed)))
    return found


def _timed(problem: Problem, slicing: Slicing, caches: Caches) -> tuple[Served, float]:
    """Simulate from empty caches, and return what they served and the seconds it took."""
    empty = hierarchy(caches)
    start = time.perf_counter()
    served = simulate(problem, slicing, empty)
    return served, time.perf_counter() - start
