"""The interpreter: inputs, observers, memory limit, checks of type rules, and graphs in two parts."""

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter, run
from mlhood.compiler.backends.targets import Split, has_data_dependent_lengths
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.movement import Gather
from mlhood.compiler.operators.onnx_operator import OnnxOperator
from mlhood.errors import CompilerError


@pytest.fixture
def graph():
    graph = Graph("sum")
    a = graph.placeholder("a", TensorType("float32", ("n", 2)))
    b = graph.placeholder("b", TensorType("float32", ("n", 2)))
    relu = graph.add(Relu(), graph.add(Add(), a, b).outputs[0])
    graph.output(relu.outputs[0], "y")
    return graph


def pairs(rows: int) -> np.ndarray:
    return np.ones((rows, 2), np.float32)


def test_any_batch(graph):
    for rows in (0, 1, 5):
        np.testing.assert_array_equal(run(graph, a=pairs(rows), b=pairs(rows))["y"], 2 * pairs(rows))


def test_memory_is_checked_again_for_a_larger_batch(graph):
    interpreter = Interpreter(graph, limit=16)
    for _ in range(2):
        assert interpreter.run({"a": pairs(2), "b": pairs(2)})["y"].shape == (2, 2)
        with pytest.raises(CompilerError, match="more memory"):
            interpreter.run({"a": pairs(3), "b": pairs(3)})


def test_values_are_kept_until_their_last_use():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (2,)))
    twice = graph.add(Add(), x, x).outputs[0]
    graph.output(twice, "twice")
    graph.output(graph.add(Add(), graph.add(Add(), twice, x).outputs[0], twice).outputs[0], "five")
    got = run(graph, x=np.float32([1, 2]))
    np.testing.assert_array_equal(got["twice"], [2, 4])
    np.testing.assert_array_equal(got["five"], [5, 10])


def test_each_value_can_be_observed(graph):
    seen = {}
    Interpreter(graph).run({"a": pairs(1), "b": -2 * pairs(1)}, lambda value, array: seen.update({value.name: array}))
    assert list(seen) == ["add", "relu"]
    np.testing.assert_array_equal(seen["add"], -pairs(1))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"a": pairs(1)}, "do not match the graph's"),
        ({"a": pairs(1), "b": pairs(1), "c": pairs(1)}, "do not match the graph's"),
        ({"a": pairs(1), "b": pairs(1).astype(np.float64)}, "wrong dtype"),
        ({"a": pairs(1), "b": pairs(1)[0]}, "wrong shape"),
        ({"a": pairs(1), "b": pairs(2)}, "with n = 1"),
        ({"a": pairs(1), "b": np.ones((1, 3), np.float32)}, "wrong shape"),
    ],
)
def test_invalid_inputs_raise(graph, inputs, message):
    with pytest.raises(CompilerError) as caught:
        run(graph, **inputs)
    assert message in str(caught.value)


def test_a_failure_names_the_node():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (3,)))
    indices = graph.placeholder("indices", TensorType("int64", (1,)))
    graph.output(graph.add(Gather(0), x, indices, name="pick").outputs[0])
    with pytest.raises(CompilerError, match="out of range") as caught:
        run(graph, x=np.zeros(3, np.float32), indices=np.array([3]))
    assert "node 'pick' (Gather)" in str(caught.value)


def test_a_violation_of_the_type_rule_raises(graph, monkeypatch):
    monkeypatch.setattr(Relu, "evaluate", lambda self, x: x.astype(np.float64))
    with pytest.raises(CompilerError, match="does not match its type") as caught:
        run(graph, a=pairs(1), b=pairs(1))
    assert "node 'relu'" in str(caught.value)


def test_inputs_are_not_modified(graph):
    a = pairs(2)
    run(graph, a=a, b=a)
    np.testing.assert_array_equal(a, pairs(2))


def test_each_part_computes_its_own_nodes():
    graph, parts = Graph(), []
    x = graph.placeholder("x", TensorType("float32", (4,)))
    early = graph.add(Relu(), x, name="early").outputs[0]
    places = graph.add(OnnxOperator("NonZero", 13), early, name="places").outputs[0]
    for value in (early, places):
        graph.output(value)

    def prepare(part):
        parts.append(list(part.nodes))
        return Interpreter(part)

    assert has_data_dependent_lengths(graph)
    results = Split(graph, prepare).run({"x": np.array([1, -1, 0, 2], np.float32)})
    assert parts == [["early"]]
    np.testing.assert_array_equal(results["places"], [[0, 3]])
    np.testing.assert_array_equal(results["early"], [1, 0, 0, 2])
