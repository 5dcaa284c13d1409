"""What `mlhood bench nmp` measures: gains, bounds, gaps, sweeps, and their figure."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.compiler import bench_nmp
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.bench_nmp_figures import scaling
from mlhood.errors import CompilerError
from mlhood.plotting.alt_text import alt_text


@pytest.fixture(scope="module")
def lenet():
    return bench_nmp.network_graph("lenet")


def test_the_graph_of_a_network_holds_integers_only(lenet):
    values = [*lenet.placeholders.values(), *lenet.outputs.values()]
    assert {value.type.element for value in values} == {"int8"}
    assert not {node.operator.name for node in lenet.nodes.values()} & {"Quantize", "Dequantize"}


def test_gains_lie_between_greedy_and_bound(lenet):
    result = bench_nmp.measure(lenet, default_machine())
    assert len(result.layers) == 7  # 2 convolutions, 2 poolings, 3 dense layers
    for row in result.layers:
        assert row.bound <= row.searched <= row.greedy, row.name
    assert result.fused <= result.total.searched
    assert result.total.greedy == sum(row.greedy for row in result.layers)
    assert "21.7 %" in str(result)


def test_no_search_is_better_than_the_best_of_all_slicings(monkeypatch):
    some = {name: stages for name, stages in bench_nmp.SMALL.items() if name.startswith("dense") or "blobs" in name}
    monkeypatch.setattr(bench_nmp, "SMALL", some)
    found = list(bench_nmp.gaps(default_machine()))
    assert len(found) == len(some)
    for name, searched, best in found:
        assert best <= searched <= 1.25 * best, name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tilelets=1..8", ("tilelets", [1, 2, 4, 8])),
        ("tiles=3..7", ("tiles", [3, 6, 7])),
        ("tiles=2..2", ("tiles", [2])),
    ],
)
def test_a_sweep_doubles_up_to_its_end(text, expected):
    assert bench_nmp.parse_sweep(text) == expected


@pytest.mark.parametrize(
    "text", ["", "tilelets", "blobs=1..4", "tilelets=0..4", "tiles=4..1", "tiles=1..65", "tiles=1-4"]
)
def test_an_invalid_sweep_is_refused(text):
    with pytest.raises(CompilerError, match="invalid sweep"):
        bench_nmp.parse_sweep(text)


def test_unknown_names_are_refused():
    with pytest.raises(CompilerError, match="unknown network"):
        bench_nmp.network_graph("alexnet")
    with pytest.raises(CompilerError, match="unknown element type"):
        bench_nmp.network_graph("lenet", "float32")


def test_the_figure_shows_a_line_for_each_network():
    figure = scaling({"a": [(1, 800), (2, 400), (4, 200)], "b": [(1, 900), (2, 450), (4, 300)]})
    assert [line.get_label() for line in figure.axes[0].lines] == ["ideal", "a", "b"]
    assert list(figure.axes[0].lines[2].get_ydata()) == [1, 2, 3]
    assert "1 to 4" in alt_text(figure)
    with pytest.raises(CompilerError, match="no scaling"):
        scaling({})


def test_the_command_writes_rows_and_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_nmp, "SMALL", {})
    rows, picture = tmp_path / "nmp.json", tmp_path / "scaling.svg"
    options = ["--sweep", "tilelets=1..2", "--draw", str(picture), "--json", str(rows), "--element", "int16"]
    result = CliRunner().invoke(app, ["bench", "nmp", "lenet", *options])
    assert result.exit_code == 0, result.output
    data = json.loads(rows.read_text())
    assert data["element"] == "int16"
    assert [units for units, _ in data["scaling"]["lenet"]] == [4, 8]
    assert data["scaling"]["lenet"][0][1] > data["scaling"]["lenet"][1][1]
    assert picture.read_text().lstrip().startswith("<?xml")


def test_a_picture_needs_a_sweep(tmp_path):
    result = CliRunner().invoke(app, ["bench", "nmp", "lenet", "--draw", str(tmp_path / "a.svg")])
    assert result.exit_code != 0
