"""What the bench of JAX measures and writes; how fast anything is, it says itself."""

import json
import os

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.jaxlab import bench
from mlhood.jaxlab.cluster import bench as cluster_bench
from mlhood.jaxlab.cluster.bench import Step
from mlhood.jaxlab.operators.cases import cases, resnet18
from mlhood.jaxlab.tables import JAX, NETWORK, NO_JAX

SMALL = cases(32)


@pytest.fixture
def own_settings(monkeypatch):
    """Let the command tell the libraries what it likes: this process's variables and options stay what they are."""
    before = jax.config.values["jax_cpu_enable_async_dispatch"]
    monkeypatch.setattr(os, "environ", dict(os.environ))
    yield
    jax.config.update("jax_cpu_enable_async_dispatch", before)


def test_torch_and_onnx_runtime_compute_the_same_network():
    case = SMALL[NETWORK]
    expected = case.no_jax(*case.arguments)
    peers = bench._peers(resnet18(), *case.arguments, 1)
    assert len(peers) == 2
    for peer in peers.values():
        np.testing.assert_allclose(peer(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_what_is_written(tmp_path, monkeypatch, own_settings):
    monkeypatch.setattr(bench.rows, "cases", lambda size: {"softmax": SMALL["softmax"]})
    path = tmp_path / "jax.json"
    result = CliRunner().invoke(app, ["bench", "jax", "--operators", "--json", str(path)])
    assert result.exit_code == 0, result.output
    found = json.loads(path.read_text())
    (row,) = found["rows"]
    assert (found["bench"], found["threads"], found["asynchronous"], row["case"]) == ("jax", 1, False, "softmax")
    assert set(row["ratios"]) == {bench.EAGER, NO_JAX}
    for ratio in row["ratios"].values():
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert all(seconds > 0 for seconds in row["stages"][JAX].values())
    assert result.output.startswith("softmax:")
    assert os.environ["PJRT_NPROC"] == "1"


def test_the_network_has_all_sides(monkeypatch):
    monkeypatch.setattr(bench, "_compared", lambda sides, *_: list(sides))  # compiling them all takes long
    monkeypatch.setattr(bench, "_peers", lambda *_: {"torch eager": None})
    monkeypatch.setattr(bench.timing, "stages", lambda *_, **__: None)
    row = bench.network_row(1, 21, 32)
    assert list(row.result) == [JAX, bench.EAGER, NO_JAX, bench.AS_ARGUMENTS, "torch eager"]
    assert list(row.stages) == [JAX, bench.AS_ARGUMENTS]


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


def test_steps_over_processes_are_written_too(tmp_path, monkeypatch, own_settings):
    steps = [Step(1, 3e-4, 3e-4, 0.0, 1.0, 0.0, 1000, 4), Step(2, 4e-3, 5e-4, 1e-3, 1e9, 1010.0, 1000, 4)]
    monkeypatch.setattr(cluster_bench, "measure", lambda processes, rounds: steps if processes == (1, 2) else None)
    path = tmp_path / "steps.json"
    result = CliRunner().invoke(app, ["bench", "jax", "--processes", "2", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "+1.00%" in result.output
    found = json.loads(path.read_text())
    assert [step["predicted_bytes"] for step in found["steps"]] == [0, 1000]
    assert found["steps"][1]["sent"] == 1010
