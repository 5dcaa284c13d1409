"""What the search for slices gains: bounds and gaps."""

import pytest
from typer.testing import CliRunner

from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.errors import CompilerError
from tests.tools.compiler import neural_processor
from tests.tools.compiler.__main__ import app


@pytest.fixture(scope="module")
def lenet():
    return neural_processor.network_graph("lenet")


def test_the_graph_of_a_network_holds_integers_only(lenet):
    values = [*lenet.placeholders.values(), *lenet.outputs.values()]
    assert {value.type.element for value in values} == {"int8"}
    assert not {node.operator.name for node in lenet.nodes.values()} & {"Quantize", "Dequantize"}


def test_gains_lie_between_greedy_and_bound(lenet):
    result = neural_processor.measure(lenet, default_machine())
    assert len(result.layers) == 7  # 2 convolutions, 2 poolings, 3 dense layers
    for row in result.layers:
        assert row.bound <= row.searched <= row.greedy, row.name
    assert result.fused <= result.total.searched
    assert result.total.greedy == sum(row.greedy for row in result.layers)
    assert "21.7 %" in str(result)


def test_no_search_is_better_than_the_best_of_all_slicings(monkeypatch):
    some = {
        name: stages for name, stages in neural_processor.SMALL.items() if name.startswith("dense") or "blobs" in name
    }
    monkeypatch.setattr(neural_processor, "SMALL", some)
    found = list(neural_processor.gaps(default_machine()))
    assert len(found) == len(some)
    for name, searched, best in found:
        assert best <= searched <= 1.25 * best, name


def test_unknown_names_are_refused():
    with pytest.raises(CompilerError, match="unknown network"):
        neural_processor.network_graph("alexnet")
    with pytest.raises(CompilerError, match="unknown element type"):
        neural_processor.network_graph("lenet", "float32")


def test_the_command_prints_layers(monkeypatch):
    monkeypatch.setattr(neural_processor, "SMALL", {})
    result = CliRunner().invoke(app, ["neural-processor", "lenet", "--element", "int16"])
    assert result.exit_code == 0, result.output
    assert "all layers, one by one" in result.output
