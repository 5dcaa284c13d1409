"""What the bench of JAX measures and writes; how fast anything is, it says itself."""

import json
import os

import jax
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.jaxlab import bench
from mlhood.jaxlab.operators.cases import cases
from mlhood.jaxlab.tables import JAX, NETWORK, NO_JAX

SMALL = cases(32)


@pytest.fixture
def own_settings(monkeypatch):
    """Let the command tell the libraries what it likes: this process's variables and options stay what they are."""
    before = jax.config.values["jax_cpu_enable_async_dispatch"]
    monkeypatch.setattr(os, "environ", dict(os.environ))
    yield
    jax.config.update("jax_cpu_enable_async_dispatch", before)


def test_the_network_agrees_with_torch_and_onnx_runtime(tmp_path, own_settings):
    path = tmp_path / "jax.json"
    result = CliRunner().invoke(app, ["bench", "jax", "--size", "32", "--json", str(path)])
    assert result.exit_code == 0, result.output
    found = json.loads(path.read_text())
    (row,) = found["rows"]
    assert (found["bench"], found["threads"], found["asynchronous"], row["case"]) == ("jax", 1, False, NETWORK)
    others = {bench.EAGER, bench.AS_ARGUMENTS, NO_JAX, "torch eager", "ONNX Runtime"}
    assert set(row["ratios"]) == others
    assert set(row["seconds"]) == {JAX, *others}
    assert set(row["stages"]) == {JAX, bench.AS_ARGUMENTS}
    assert all(seconds > 0 for seconds in row["stages"][JAX].values())
    for ratio in row["ratios"].values():
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert all(side in result.output for side in others)
    assert os.environ["PJRT_NPROC"] == "1"


def test_an_operator_has_a_row_with_and_without_jax(monkeypatch):
    monkeypatch.setattr(bench.rows, "cases", lambda size: {"softmax": SMALL["softmax"]})
    (row,) = bench.operator_rows(1, 21, 32)
    assert row.name == "softmax"
    assert list(row.result.measurements) == [JAX, bench.EAGER, NO_JAX]
    assert list(row.stages) == [JAX]
    assert all(one.agreed for one in row.result.measurements.values())
    told = str(row).splitlines()
    assert "compile" in told[1]
    assert "ratio" not in told[1]
    assert all("ratio" in line for line in told[2:])


def test_a_gpu_adds_its_sides(monkeypatch):
    monkeypatch.setattr(bench, "accelerator", lambda: jax.devices("cpu")[0])  # any device will do
    monkeypatch.setattr(bench.rows, "cases", lambda size: {"add": SMALL["add"]})
    (row,) = bench.operator_rows(1, 21, 32)
    assert list(row.result.measurements)[3:] == [bench.GPU, bench.GPU_AND_BACK]
    assert list(row.stages) == [JAX, bench.GPU]
    assert json.loads(json.dumps(row.as_dict())) == row.as_dict()


def test_without_a_gpu_there_is_none():
    assert (bench.accelerator() is None) == (jax.default_backend() == "cpu")
