"""The benchmark of compile time; the measured times themselves are not checked."""

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.models.resnet import BasicBlock, ResNet
from tests.tools.compiler import compile_time
from tests.tools.compiler.__main__ import app


@pytest.mark.parametrize("nodes", [1, 5, 100])
def test_a_chain_is_a_network_with_the_given_number_of_nodes(nodes):
    graph = import_model(compile_time.chain(nodes))
    verify(graph)
    assert len(graph.nodes) == nodes
    image = np.random.default_rng(0).standard_normal((2, 4, 8, 8), np.float32)
    (before,), (after,) = run(graph, image=image).values(), run(optimize(graph), image=image).values()
    assert before.shape == (2, 4, 8, 8)
    np.testing.assert_allclose(after, before, rtol=1e-4)


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_the_exponent_is_the_slope(exponent):
    rng = np.random.default_rng(0)
    seconds = {n: (n**exponent * 1e-6 * rng.uniform(0.95, 1.05, 5)).tolist() for n in (100, 1000, 10_000)}
    assert compile_time.exponent(seconds) == pytest.approx(exponent, abs=0.02)


def test_the_command_prints_chains_and_networks(monkeypatch):
    monkeypatch.setattr(compile_time.time_chains, "__defaults__", ((10, 20),))
    monkeypatch.setattr(compile_time, "NETWORKS", {"small": lambda: ResNet(BasicBlock, [1, 1, 1, 1], classes=2)})
    result = CliRunner().invoke(app, ["compile-time", "--rounds", "1"])
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.strip()}
    assert rows.keys() >= {*compile_time.STAGES, "small"}
    assert int(rows["small"][0]) > int(rows["small"][1]) > 0
    assert all(float(each) > 0 for each in rows["import"][:2])
