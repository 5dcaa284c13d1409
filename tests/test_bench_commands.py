"""What the benches of kernels print; no test depends on times."""

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.jaxlab.operators import cases
from mlhood.kernels import bench, tables
from mlhood.kernels.layers import Layer

SMALL = Layer(4, 8, 8, 3)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(bench, "resnet50_layers", lambda: [SMALL])
    monkeypatch.setattr(tables, "RESNET18", {"C1": SMALL})


@pytest.mark.parametrize(("command", "ours"), [("conv", "direct"), ("sliced", "sliced")])
def test_ratios_to_each_library_and_their_means(command, ours):
    case, means = CliRunner().invoke(app, ["bench", command], catch_exceptions=False).stdout.splitlines()
    assert f": {ours} " in case
    for library in ("torch, own layout", "onnxruntime", "im2col_blas"):
        ratio = float(case.partition(f"{library} ")[2].split()[0])
        assert float(means.partition(f"{library} ")[2].split()[0]) == pytest.approx(ratio, abs=0.006)


def test_jax_beside_numpy(monkeypatch):
    case = cases.OperatorCase(np.negative, lambda x: -x, (np.ones(3, np.float32),))
    monkeypatch.setattr(cases, "cases", lambda: {"negative": case})
    case, means = CliRunner().invoke(app, ["bench", "jax"], catch_exceptions=False).stdout.splitlines()
    assert case.startswith("negative: JAX ")
    assert "NumPy" in means
