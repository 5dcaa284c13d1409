"""The benchmark's output, except its times."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.dataflow.sliced import bench
from mlhood.dataflow.slicing.fit import check
from mlhood.errors import KernelError, OutputError
from mlhood.kernels import layers
from mlhood.kernels.layers import Layer

SMALL = Layer(4, 8, 8, 3)


def test_a_case_has_every_alternative_and_its_slicing():
    ((case, slicing),) = bench.sliced_cases(1, 21, "hot", [SMALL])
    assert case.baselines == ["torch", "onnxruntime", "im2col_blas", "direct"]
    assert slicing == bench.prepare(SMALL)[0].slicing
    assert set(case.row()["ratios"]) == set(case.baselines)


def test_the_grid_is_legal_and_in_both_orders():
    sliced, _, _ = bench.prepare(Layer(16, 12, 70, 3))
    grid = list(bench.grid(sliced))
    assert {slicing.order for slicing in grid} == {"IS", "WS"}
    assert len(set(grid)) == len(grid) > 20
    for slicing in grid:
        check(sliced.problem, slicing, sliced.caches)


def test_halves_go_down_to_one():
    assert bench.halves(13) == [13, 6, 3, 1]
    assert bench.halves(1) == [1]


def test_the_search_times_the_choice_against_the_fastest_others():
    times = bench.search(SMALL, 1, 21)
    row = json.loads(json.dumps(times.row()))
    assert row["chosen"] == str(times.chosen) != row["best"] == str(times.best)
    assert row["ratio"]["low"] <= row["ratio"]["value"] <= row["ratio"]["high"]
    assert times.excess == row["ratio"]["value"] - 1
    grid = set(bench.grid(bench.prepare(SMALL)[0]))
    assert times.timed == len(grid | {times.chosen})


def test_the_benchmark_writes_rows_means_and_the_search(tmp_path, monkeypatch):
    monkeypatch.setitem(layers.NETWORKS, "small", lambda: [SMALL, SMALL, Layer(4, 8, 4, 3, groups=4)])
    file = tmp_path / "sliced.json"
    result = CliRunner().invoke(app, ["bench", "sliced", "--network", "small", "--search", "--json", str(file)])
    assert result.exception is None
    assert "geometric means" in result.stdout
    data = json.loads(file.read_text())
    (row,) = data["rows"]  # each layer once, without grouped ones
    (searched,) = data["search"]
    assert row["case"] == searched["case"] == SMALL.name
    assert row["slicing"] == searched["chosen"]
    assert data["summary"]["ratios"]["torch"] == pytest.approx(row["ratios"]["torch"]["value"])


def test_invalid_options_are_rejected_before_the_work(tmp_path):
    for option, error in ((["--network", "lenet"], KernelError), (["--json", str(tmp_path)], OutputError)):
        assert isinstance(CliRunner().invoke(app, ["bench", "sliced", *option]).exception, error)
