"""Cycles, accesses and traffic against recorded reports of SCALE-Sim (`record.py`)."""

import csv
import json
import tracemalloc
from pathlib import Path

import pytest

from mlhood.dataflow.systolic import Array, ArrayLayer, count, gemm_layer, read_topology, simulate_memories
from mlhood.errors import DataflowError

RECORDED = json.loads((Path(__file__).with_name("golden") / "scalesim.json").read_text(encoding="utf-8"))
FIELDS = ("ArrayHeight", "ArrayWidth", "Dataflow", "IfmapSramSzkB", "FilterSramSzkB", "OfmapSramSzkB")


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: " ".join(map(str, case["presets"].values())))
def test_counts_equal_recorded_ones(case, tmp_path):
    (tmp_path / "t.csv").write_text(case["topology"])
    array = Array(*(case["presets"][field] for field in FIELDS))
    computes, accesses = (rows(case["reports"][name]) for name in ("COMPUTE", "DETAILED_ACCESS"))
    for layer, compute, access in zip(read_topology(tmp_path / "t.csv"), computes, accesses, strict=True):
        counts, memories = count(layer, array), simulate_memories(layer, array)
        last_cycle = counts.cycles - 1
        # for "os" SCALE-Sim adds R + C to the writes of each fold
        writes = counts.ofmap_writes + (array.dataflow == "os") * counts.folds * (array.rows + array.columns)
        assert compute["Total Cycles"] == str(last_cycle)
        assert float(compute["Overall Util %"]) == pytest.approx(100 * counts.macs / (last_cycle * array.elements))
        columns = ("SRAM IFMAP Reads", "SRAM Filter Reads", "SRAM OFMAP Writes")
        assert [int(access[column]) for column in columns] == [counts.ifmap_reads, counts.filter_reads, writes]
        columns = ("DRAM IFMAP Reads", "DRAM Filter Reads", "DRAM OFMAP Writes")
        assert [int(access[column]) for column in columns] == [memories.ifmap, memories.filter, memories.ofmap]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(), skipinitialspace=True))


def test_the_recorded_cases_include_memories_that_are_refilled_and_that_are_not():
    stops = [
        float(row[f"DRAM {operand} Stop Cycle"])
        for case in RECORDED["cases"]
        for row in rows(case["reports"]["DETAILED_ACCESS"])
        for operand in ("IFMAP", "Filter")
    ]
    assert sum(cycle > -1 for cycle in stops) > 20
    assert stops.count(-1) > 20


def test_large_memories_fetch_each_word_once():
    layer = ArrayLayer("C", 9, 9, 3, 3, 8, 16)
    for dataflow in ("ws", "is", "os"):
        memories = simulate_memories(layer, Array(4, 4, dataflow, 64, 64, 64))
        assert (memories.ifmap, memories.filter) == (9 * 9 * 8, layer.k * layer.n)


def test_a_smaller_memory_never_fetches_less():
    layer = gemm_layer("product", 60, 70, 80)
    fetched = [simulate_memories(layer, Array(8, 8, "ws", size, 1, 1)).ifmap for size in (1, 2, 4, 8, 16)]
    assert fetched == sorted(fetched, reverse=True)
    assert fetched[-1] == 60 * 80
    assert fetched[0] > fetched[-1]


def test_a_layer_too_large_to_simulate_is_rejected_before_allocation():
    tracemalloc.start()
    try:
        for layer in (gemm_layer("wide", 1, 1 << 20, 1 << 20), gemm_layer("long", 1 << 24, 1 << 10, 1 << 10)):
            assert count(layer, Array(16, 16, "ws")).cycles > 1 << 20
            with pytest.raises(DataflowError, match="too large"):
                simulate_memories(layer, Array(16, 16, "ws"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
