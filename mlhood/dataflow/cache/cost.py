"""What a sliced convolution costs in simulated caches of declared sizes: one number, to compare slicings by."""

from __future__ import annotations

from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.dataflow.cache.nest import simulate
from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.problem import Problem, Slicing
from mlhood.errors import CacheError

_MIN_WAYS = 8


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
        raise CacheError("the sizes of all levels are needed", expected=", ".join(LEVELS), got=str(caches))
    return Hierarchy([Level(size, ways(size, caches.line)) for size in sizes], caches.line)


def simulated_traffic(problem: Problem, slicing: Slicing, caches: Caches) -> int:
    """Return the cache lines that L2, L3 and memory serve, each times the latency of its level, in cycles.

    The caches begin empty, are set associative, and hold all of their size, whatever `caches.fill` says. What L1 serves
    is left out: every slicing makes the same loads.

    Args:
        problem: The convolution.
        slicing: Its tiles and their order; it need not fit the caches.
        caches: Declared sizes, all three known.

    Raises:
        CacheError: A size is unknown, or is no power of two times the line and some ways.
    """
    hits = simulate(problem, slicing, hierarchy(caches))
    served = (*hits.levels[1:], hits.memory)
    return sum(latency * lines for latency, lines in zip(caches.latencies[1:], served, strict=True))
