"""Fusion of element-wise operators: what is fused, and that it computes the same."""

import numpy as np
import pytest

from mlhood.compiler.backends.cpu import lowering
from mlhood.compiler.backends.cpu.lowering import expand_normalizations, expand_powers, fuse_chains
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.chain import ElementwiseChain
from mlhood.compiler.operators.elementwise import OPERATORS, Clip, Relu
from mlhood.compiler.operators.normalization import BatchNormalization, Softmax

Abs = next(operator for operator in OPERATORS if operator.__name__ == "Abs")
SHAPE = (2, 3, 4)


@pytest.fixture
def graph():
    graph = Graph("chains")
    graph.placeholder("x", TensorType("float32", SHAPE))
    graph.placeholder("z", TensorType("float32", SHAPE))
    return graph


def check_same(graph, change):
    shapes = {name: p.type.shape for name, p in graph.placeholders.items()}
    inputs = {n: np.random.default_rng(5).standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    expected = Interpreter(graph).run(inputs)
    change(graph)
    verify(graph)
    actual = Interpreter(graph).run(inputs)
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name])


def operators(graph):
    return [node.operator.name for node in graph.topological()]


def test_a_tree_becomes_one_chain(graph):
    x, z = graph.value("x"), graph.value("z")
    c = graph.constant("c", np.float32(2))
    a = graph.add(Mul(), x, c).outputs[0]
    b = graph.add(Sub(), z, x).outputs[0]
    total = graph.add(AddActivation(("Relu",)), a, b).outputs[0]
    graph.output(graph.add(Div(), total, x).outputs[0], "y")
    check_same(graph, fuse_chains)
    (node,) = graph.nodes.values()
    assert isinstance(node.operator, ElementwiseChain)
    assert sorted(step[0] for step in node.operator.steps) == ["Add", "Div", "Mul", "Relu", "Sub"]
    assert node.operator.label.endswith("Div")


def test_a_value_with_two_uses_or_an_output_is_kept(graph):
    x = graph.value("x")
    a = graph.add(Relu(), x, name="a").outputs[0]
    b = graph.add(Mul(), a, x, name="b").outputs[0]
    graph.output(graph.add(Add(), b, a, name="c").outputs[0], "y")
    graph.output(graph.add(Relu(), b, name="d").outputs[0], "w")
    check_same(graph, fuse_chains)
    assert operators(graph) == ["Relu", "Mul", "Add", "Relu"]


def test_a_smaller_result_that_is_broadcast_later_is_kept(graph):
    row = graph.placeholder("row", TensorType("float32", (1, 4)))
    small = graph.add(Relu(), row).outputs[0]
    graph.output(graph.add(Add(), graph.value("x"), small).outputs[0], "y")
    check_same(graph, fuse_chains)
    assert operators(graph) == ["Relu", "Add"]


def test_operators_that_the_back_end_does_not_know_are_kept(graph, monkeypatch):
    a = graph.add(Clip(0.0, 1.0), graph.value("x")).outputs[0]
    graph.output(graph.add(Relu(), a).outputs[0], "y")
    monkeypatch.setattr(lowering, "OPERATIONS", {"Relu"})
    fuse_chains(graph)
    assert operators(graph) == ["Clip", "Relu"]


def test_an_operator_between_divides_a_chain(graph):
    a = graph.add(Relu(), graph.value("x")).outputs[0]
    b = graph.add(Softmax((2,)), a).outputs[0]
    graph.output(graph.add(Relu(), b).outputs[0], "y")
    check_same(graph, fuse_chains)
    assert operators(graph) == ["Relu", "Softmax", "Relu"]


def test_a_normalisation_by_constants_becomes_arithmetic(graph):
    x = graph.placeholder("image", TensorType("float32", ("n", 2, 4, 4)))
    numbers = [graph.constant(n, np.array([0.5, 2], np.float32)) for n in ("scale", "bias", "mean", "variance")]
    y = graph.add(BatchNormalization(1e-3), x, *numbers).outputs[0]
    graph.output(y, "y")
    image = np.random.default_rng(6).standard_normal((3, 2, 4, 4)).astype(np.float32)
    inputs = {"x": np.zeros(SHAPE, np.float32), "z": np.zeros(SHAPE, np.float32), "image": image}
    expected = Interpreter(graph).run(inputs)["y"]
    expand_normalizations(graph)
    np.testing.assert_array_equal(Interpreter(graph).run(inputs)["y"], expected)
    assert operators(graph) == ["Sub", "Mul", "Add"]


@pytest.mark.parametrize(("exponent", "operator"), [(2, "Mul"), (0.5, "Sqrt"), (-1, "Reciprocal"), (1.7, "Pow")])
def test_powers_with_common_exponents_become_arithmetic(graph, exponent, operator):
    base = graph.add(Abs(), graph.value("x")).outputs[0]
    graph.output(graph.add(Pow(), base, graph.constant("e", np.float32(exponent))).outputs[0], "y")
    expand_powers(graph)
    assert operators(graph) == ["Abs", operator]
    x = np.abs(np.random.default_rng(7).standard_normal(SHAPE)).astype(np.float32)
    actual = Interpreter(graph).run({"x": x, "z": x})["y"]
    np.testing.assert_allclose(actual, np.power(x, np.float32(exponent)), rtol=1e-6)
