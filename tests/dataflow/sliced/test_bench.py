"""The benchmark's output, except its times."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.dataflow.sliced import bench
from mlhood.errors import KernelError, OutputError
from mlhood.kernels import layers
from mlhood.kernels.layers import Layer

SMALL = Layer(4, 8, 8, 3)


def test_a_case_has_every_alternative_and_its_slicing():
    (case,) = bench.sliced_cases(1, 21, "hot", [SMALL])
    assert case.baselines == ["torch", "onnxruntime", "im2col_blas", "direct"]
    assert case.name == f"{SMALL.name}, {bench.prepare(SMALL)[0].slicing}"
    assert set(case.row()["ratios"]) == set(case.baselines)


def test_the_benchmark_writes_rows_and_means(tmp_path, monkeypatch):
    monkeypatch.setitem(layers.NETWORKS, "small", lambda: [SMALL, SMALL, Layer(4, 8, 4, 3, groups=4)])
    file = tmp_path / "sliced.json"
    result = CliRunner().invoke(app, ["bench", "sliced", "--network", "small", "--json", str(file)])
    assert result.exception is None
    assert "geometric means" in result.stdout
    data = json.loads(file.read_text())
    (row,) = data["rows"]  # each layer once, without grouped ones
    assert row["case"].startswith(SMALL.name)
    assert data["summary"]["all"]["ratios"]["torch"] == pytest.approx(row["ratios"]["torch"]["value"])


def test_invalid_options_are_rejected_before_the_work(tmp_path):
    for option, error in ((["--network", "lenet"], KernelError), (["--json", str(tmp_path)], OutputError)):
        assert isinstance(CliRunner().invoke(app, ["bench", "sliced", *option]).exception, error)
