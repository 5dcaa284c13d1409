"""What the benchmark of JAX measures and writes, not how fast anything is."""

import json
import os
import time
from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.jaxlab import bench
from mlhood.jaxlab.bench import stages
from mlhood.jaxlab.operators.cases import NETWORK, cases, resnet18
from mlhood.jaxlab.tables import JAX, NO_JAX

SMALL = cases(32)


@pytest.fixture
def restored_settings(monkeypatch):
    """Restore this process's environment and JAX's options after the command has changed them."""
    asynchronous = jax.config.values["jax_cpu_enable_async_dispatch"]
    monkeypatch.setattr(os, "environ", dict(os.environ))
    yield
    jax.config.update("jax_cpu_enable_async_dispatch", asynchronous)


def test_torch_and_onnx_runtime_compute_the_same_network():
    case = SMALL[NETWORK]
    expected = case.no_jax(*case.arguments)
    others = bench._other_libraries(resnet18(), *case.arguments, 1)
    assert len(others) == 2
    for other in others.values():
        np.testing.assert_allclose(other(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_the_json_file(tmp_path, monkeypatch, restored_settings):
    monkeypatch.setattr(bench.rows, "cases", lambda size: {"softmax": SMALL["softmax"]})
    path = tmp_path / "jax.json"
    result = CliRunner().invoke(app, ["bench", "jax", "--operators", "--json", str(path)])
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text())
    (row,) = data["rows"]
    assert (data["bench"], data["threads"], row["case"]) == ("jax", 1, "softmax")
    assert set(row["ratios"]) == {bench.EAGER, NO_JAX}
    for ratio in row["ratios"].values():
        assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert all(seconds > 0 for seconds in row["stages"][JAX].values())
    assert result.output.startswith("softmax:")
    assert os.environ["PJRT_NPROC"] == "1"


def test_the_network_has_all_alternatives(monkeypatch):
    monkeypatch.setattr(bench, "_compare", lambda alternatives, *_: list(alternatives))  # compiling them takes long
    monkeypatch.setattr(bench, "_other_libraries", lambda *_: {"torch eager": None})
    monkeypatch.setattr(bench, "stages", lambda *_, **__: None)
    row = bench.network_row(1, 21, 32)
    assert list(row.result) == [JAX, bench.EAGER, NO_JAX, bench.AS_ARGUMENTS, "torch eager"]
    assert list(row.stages) == [JAX, bench.AS_ARGUMENTS]


def test_an_operator_has_a_row_with_and_without_jax(monkeypatch):
    monkeypatch.setattr(bench.rows, "cases", lambda size: {"softmax": SMALL["softmax"]})
    (row,) = bench.operator_rows(1, 21, 32)
    assert row.name == "softmax"
    assert list(row.result.measurements) == [JAX, bench.EAGER, NO_JAX]
    assert list(row.stages) == [JAX]
    assert all(measurement.agreed for measurement in row.result.measurements.values())
    lines = str(row).splitlines()
    assert "compile" in lines[1]
    assert "ratio" not in lines[1]
    assert all("ratio" in line for line in lines[2:])


def test_a_gpu_adds_alternatives(monkeypatch):
    monkeypatch.setattr(bench, "gpu", lambda: jax.devices("cpu")[0])  # any device will do
    monkeypatch.setattr(bench.rows, "cases", lambda size: {"add": SMALL["add"]})
    (row,) = bench.operator_rows(1, 21, 32)
    assert list(row.result.measurements)[3:] == [bench.GPU, bench.GPU_WITH_TRANSFERS]
    assert list(row.stages) == [JAX, bench.GPU]
    assert json.loads(json.dumps(row.as_dict())) == row.as_dict()


def test_there_is_no_gpu_on_the_cpu_backend():
    assert (bench.gpu() is None) == (jax.default_backend() == "cpu")


# -- the stages of a JAX function: what happens in which of them, not how long they take


def test_each_stage_is_timed():
    measured = stages(lambda x, tree: jnp.tanh(x) @ tree["w"], np.ones((4, 4), np.float32), {"w": np.eye(4)})
    assert all(seconds > 0 for seconds in asdict(measured).values())


def test_python_runs_once_and_while_tracing():
    calls = []

    def slow(x):
        calls.append(x)
        time.sleep(0.05)
        return x + 1

    first, second = stages(slow, 1.0), stages(slow, 1.0)
    assert len(calls) == 2
    assert all(isinstance(x, jax.core.Tracer) for x in calls)
    assert min(first.trace, second.trace) >= 0.05


def test_results_are_waited_for():
    def wait(x):
        time.sleep(0.05)
        return np.asarray(x)

    callback = lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), x)  # noqa: E731
    measured = stages(callback, np.float32(1))
    assert min(measured.first, measured.run) >= 0.05
