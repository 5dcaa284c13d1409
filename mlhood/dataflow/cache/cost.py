"""What a sliced convolution costs in simulated caches: one number, to compare slicings by."""

from __future__ import annotations

from mlhood.dataflow.cache.bench import hierarchy
from mlhood.dataflow.cache.nest import simulate
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import Problem, Slicing


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
