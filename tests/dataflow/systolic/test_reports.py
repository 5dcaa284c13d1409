"""The reports against those of SCALE-Sim's own test, and against recorded ones (`record.py`)."""

import csv
import json
import tracemalloc
from pathlib import Path

import pytest

from mlhood.dataflow.systolic import (
    Array,
    Layer,
    as_csv,
    count,
    gemm_layer,
    read_topology,
    report,
    simulate_memories,
)
from mlhood.dataflow.systolic.reports import FILES
from mlhood.errors import DataflowError

RECORDED = json.loads((Path(__file__).with_name("golden") / "scalesim.json").read_text(encoding="utf-8"))

# test/golden_trace of SCALE-Sim 2.0.2: its 32 x 32 array, weight stationary, on alexnet_part.csv
VERSION_2 = {
    "COMPUTE": "0, 112283, 0, 91.68309650614964, 94.53125, 90.78000992063492,",
    "BANDWIDTH": "0, 29.338590881967885, 0.31035864734643714, 31.035864734643713, 15.686576632947475, "
    "0.3280954308794592, 31.243441697000126,",
    "DETAILED_ACCESS": "0, 33.0, 112176.0, 3294225, 1.0, 109197.0, 34848, 63.0, 112283.0, 3484800, -3243.0, 111824.0, "
    "1805023, -3275.0, 102937.0, 34848, 1102.0, 112639.0, 3484831,",
}


@pytest.mark.parametrize("name", FILES)
def test_the_reports_equal_those_of_scale_sims_own_test(name):
    result = report(Layer("Conv1", 224, 224, 11, 11, 3, 96, 4, 4), Array(32, 32, "ws"), version=2)
    assert as_csv([result], name).splitlines()[1] == VERSION_2[name]


def array_of(presets: dict) -> Array:
    return Array(
        presets["ArrayHeight"],
        presets["ArrayWidth"],
        presets["Dataflow"],
        presets["IfmapSramSzkB"],
        presets["FilterSramSzkB"],
        presets["OfmapSramSzkB"],
    )


# sums of floats over folds, whose last digit depends on the Python that runs SCALE-Sim (see `record.py`)
SUMMED = {"Mapping Efficiency %", "Compute Util %"}


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: " ".join(map(str, case["presets"].values())))
def test_the_reports_equal_recorded_ones(case, tmp_path):
    (tmp_path / "t.csv").write_text(case["topology"])
    reports = [report(layer, array_of(case["presets"])) for layer in read_topology(tmp_path / "t.csv")]
    for name in FILES:
        ours, theirs = rows(as_csv(reports, name)), rows(case["reports"][name])
        for row, recorded in zip(ours, theirs, strict=True):
            assert list(row) == list(recorded)
            for column in SUMMED & row.keys():
                assert float(row.pop(column)) == pytest.approx(float(recorded.pop(column)), rel=1e-13)
            assert row == recorded


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines(), skipinitialspace=True))


def test_the_recorded_cases_include_memories_that_are_refilled_and_that_are_not():
    refilled, once = 0, 0
    for case in RECORDED["cases"]:
        access = case["reports"]["DETAILED_ACCESS"].splitlines()[1].split(",")
        stop = [float(access[column]) for column in (11, 14)]
        refilled += sum(cycle > -1 for cycle in stop)
        once += sum(cycle == -1 for cycle in stop)
    assert refilled > 20
    assert once > 20


def test_large_memories_fetch_each_word_once():
    layer = Layer("C", 9, 9, 3, 3, 8, 16)
    for dataflow in ("ws", "is", "os"):
        memories = simulate_memories(layer, Array(4, 4, dataflow, 64, 64, 64))
        assert (memories.ifmap.dram, memories.filter.dram) == (9 * 9 * 8, layer.k * layer.n)


def test_a_smaller_memory_never_fetches_less():
    layer = gemm_layer("product", 60, 70, 80)
    fetched = [simulate_memories(layer, Array(8, 8, "ws", size, 1, 1)).ifmap.dram for size in (1, 2, 4, 8, 16)]
    assert fetched == sorted(fetched, reverse=True)
    assert fetched[-1] == 60 * 80
    assert fetched[0] > fetched[-1]


def test_a_product_of_one_cycle_has_a_report():
    result = report(gemm_layer("one", 1, 1, 1), Array(1, 1, "os"))
    assert result.counts.cycles == 1
    assert result.compute["Overall Util %"] == 100


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


def test_an_unknown_version_is_rejected():
    with pytest.raises(DataflowError, match="version"):
        report(gemm_layer("one", 1, 1, 1), Array(1, 1, "os"), version=1)
