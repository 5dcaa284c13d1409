"""The benchmark of compile time; the measured times themselves are not checked."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.compiler import bench
from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.errors import CompilerError
from mlhood.models.resnet import BasicBlock, ResNet


@pytest.mark.parametrize("nodes", [1, 5, 100])
def test_a_chain_is_a_network_with_the_given_number_of_nodes(nodes):
    graph = import_model(bench.chain(nodes))
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
    scaling = bench.Scaling("import", seconds)
    low, high = scaling.interval()
    assert scaling.exponent == pytest.approx(exponent, abs=0.02)
    assert low <= scaling.exponent <= high
    assert high - low < 0.05


def test_all_stages_are_timed_for_all_sizes():
    rows = [row for scaling in bench.measure_scaling((10, 20), rounds=2) for row in scaling.rows()]
    assert [(row["stage"], row["nodes"]) for row in rows] == [(s, n) for s in bench.STAGES for n in (10, 20)]
    assert all(len(row["seconds"]) == 2 and row["us_per_node"] > 0 for row in rows)
    assert all(stage in bench.format_tables(rows, []) for stage in bench.STAGES)


@pytest.mark.parametrize(("sizes", "rounds"), [((10,), 1), ((10, 10), 1), ((0, 10), 1), ((10, 20), 0)])
def test_too_few_measurements_for_a_slope_raise(sizes, rounds):
    with pytest.raises(CompilerError, match="slope"):
        bench.measure_scaling(sizes, rounds)


def test_the_command_prints_tables_and_writes_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(bench.measure_scaling, "__defaults__", ((10, 20), 1, print))
    network = {"network": "ResNet-1", "nodes": 9, "total_s": 0.5}
    monkeypatch.setattr(bench, "time_networks", lambda rounds, report: [network])
    result = CliRunner().invoke(app, ["bench", "compiler", "--rounds", "1", "--json", str(tmp_path / "rows.json")])
    assert result.exit_code == 0, result.output
    assert "optimize" in result.output
    assert "ResNet-1" in result.output
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows["networks"] == [network]
    assert {row["stage"] for row in rows["chains"]} == set(bench.STAGES)


def test_a_network_is_timed(monkeypatch):
    monkeypatch.setattr(bench, "NETWORKS", {"small": lambda: ResNet(BasicBlock, [1, 1, 1, 1], classes=2)})
    (row,) = bench.time_networks(rounds=1)
    assert row["network"] == "small"
    assert row["nodes"] > row["nodes_optimized"] > 0
    assert row["total_s"] >= max(row["import_s"], row["optimize_s"])
