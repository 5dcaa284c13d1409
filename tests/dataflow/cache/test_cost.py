"""The caches that a cost is simulated in, and the cost."""

import pytest

from mlhood.dataflow.cache.cost import hierarchy, simulated_traffic, ways
from mlhood.dataflow.cache.nest import simulate
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import declared
from mlhood.dataflow.slicing.problem import ORDERS, Problem
from mlhood.errors import CacheError

SMALL = Problem(64, 8, (3, 3), (16, 16), 8, 8)


@pytest.mark.parametrize(
    ("size", "expected"), [(32 * 1024, 8), (48 * 1024, 12), (1024**2, 8), (36 * 1024**2, 9), (64 * 4, 4), (64 * 5, 5)]
)
def test_ways_leave_a_power_of_two_of_sets(size, expected):
    assert ways(size, 64) == expected


@pytest.mark.parametrize("order", ORDERS)
def test_the_cost_is_that_of_the_lines_that_l1_does_not_serve(order):
    caches = declared("4KiB,16KiB,64KiB")
    slicing, _ = analyse(SMALL, caches).candidates[order]
    hits = simulate(SMALL, slicing, hierarchy(caches))
    calls = SMALL.input_tiles * SMALL.weight_tiles
    sums = calls * -(-SMALL.output_bytes // 64)
    slices = -(-SMALL.channels // slicing.k1)
    # each call loads an element per window and filter; it loads and stores its sums, in the first slice only stores
    assert hits.accesses == calls * 72 * (8 + 8) + sums * (2 * slices - 1)
    tiles = SMALL.input_tiles * SMALL.input_bytes + SMALL.weight_tiles * SMALL.weight_bytes
    compulsory = (tiles * SMALL.channels + calls * SMALL.output_bytes) // 64
    assert hits.memory >= compulsory
    _, l2, l3, memory = caches.latencies
    assert simulated_traffic(SMALL, slicing, caches) == l2 * hits.levels[1] + l3 * hits.levels[2] + memory * hits.memory


def test_unknown_caches_are_rejected():
    with pytest.raises(CacheError, match="all levels"):
        hierarchy(declared("32KiB,1MiB,-"))
