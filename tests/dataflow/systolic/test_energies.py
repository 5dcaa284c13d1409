"""Energy: counts times costs, and its properties."""

import numpy as np
import pytest

from mlhood.dataflow.systolic import ENERGY, Array, count, energy, gemm_layer, simulate, simulate_memories


def test_each_level_is_its_accesses_times_their_cost():
    layer, array = gemm_layer("product", 6, 5, 7), Array(3, 4, "ws")
    counts, memories = count(layer, array), simulate_memories(layer, array)
    run = simulate(np.ones((6, 7)), np.ones((7, 5)), array)
    result = energy(counts, memories)
    assert result["MAC"] == 6 * 5 * 7
    assert result["register"] == 6 * 5 * 7
    assert result["hops"] == 2 * run.hops
    assert result["SRAM"] == 6 * (run.ifmap_reads + run.filter_reads + run.ofmap_writes)
    # all operands fit; K is divided into three folds, each of which writes all outputs
    assert result["DRAM"] == 200 * (6 * 7 + 7 * 5 + 3 * 6 * 5)


def test_farther_levels_cost_more():
    assert list(ENERGY.values()) == sorted(ENERGY.values())


@pytest.mark.parametrize("dataflow", ["ws", "is", "os"])
def test_a_larger_array_reads_its_memories_less(dataflow):
    layer = gemm_layer("product", 64, 64, 64)
    small, large = (count(layer, Array(size, size, dataflow)) for size in (4, 16))
    assert large.ifmap_reads + large.filter_reads < small.ifmap_reads + small.filter_reads
