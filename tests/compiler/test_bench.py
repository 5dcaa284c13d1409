"""The measurement of how the compiler's time grows; of the times themselves nothing is asked."""

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
def test_a_chain_has_as_many_nodes_as_asked_for_and_is_a_network(nodes):
    graph = import_model(bench.chain(nodes))
    verify(graph)
    assert len(graph.nodes) == nodes
    image = np.random.default_rng(0).standard_normal((2, 4, 8, 8), np.float32)
    (before,), (after,) = run(graph, image=image).values(), run(optimize(graph), image=image).values()
    assert before.shape == (2, 4, 8, 8)
    np.testing.assert_allclose(after, before, rtol=1e-4)


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_the_exponent_is_the_slope(exponent):
    draw = np.random.default_rng(0)
    seconds = {n: (n**exponent * 1e-6 * draw.uniform(0.95, 1.05, 5)).tolist() for n in (100, 1000, 10_000)}
    found = bench.Growth("import", seconds)
    low, high = found.interval()
    assert found.exponent == pytest.approx(exponent, abs=0.02)
    assert low <= found.exponent <= high
    assert high - low < 0.05


def test_all_stages_are_timed_on_all_lengths():
    found = bench.growth((10, 20), rounds=2)
    rows = [row for stage in found for row in stage.rows()]
    assert [(row["stage"], row["nodes"]) for row in rows] == [(s, n) for s in bench.STAGES for n in (10, 20)]
    assert all(len(row["seconds"]) == 2 and row["us_per_node"] > 0 for row in rows)
    assert all(stage in bench.tables(rows, []) for stage in bench.STAGES)


@pytest.mark.parametrize(("sizes", "rounds"), [((10,), 1), ((10, 10), 1), ((0, 10), 1), ((10, 20), 0)])
def test_what_gives_no_slope_is_refused(sizes, rounds):
    with pytest.raises(CompilerError, match="slope"):
        bench.growth(sizes, rounds)


def test_the_command_prints_tables_and_writes_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(bench.growth, "__defaults__", ((10, 20), 1, print))
    network = {"network": "ResNet-1", "nodes": 9, "total_s": 0.5}
    monkeypatch.setattr(bench, "networks", lambda rounds, report: [network])
    said = CliRunner().invoke(app, ["bench", "compiler", "--rounds", "1", "--json", str(tmp_path / "rows.json")])
    assert said.exit_code == 0, said.output
    assert "optimize" in said.output
    assert "ResNet-1" in said.output
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows["networks"] == [network]
    assert {row["stage"] for row in rows["chains"]} == set(bench.STAGES)


def test_a_network_is_timed_from_the_file(monkeypatch):
    monkeypatch.setattr(bench, "NETWORKS", {"small": lambda: ResNet(BasicBlock, [1, 1, 1, 1], classes=2)})
    (row,) = bench.networks(rounds=1)
    assert row["network"] == "small"
    assert row["nodes"] > row["nodes_optimized"] > 0
    assert row["total_s"] >= max(row["import_s"], row["optimize_s"])
