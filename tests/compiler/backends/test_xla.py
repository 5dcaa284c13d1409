"""The target xla against ONNX's node tests, the interpreter and ONNX Runtime; and what it refuses."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import mlhood
from mlhood.compiler.analysis.debugger import compare
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.timing import profile
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.hir.inputs import random_inputs
from mlhood.compiler.operators import IMPORT_RULES
from mlhood.compiler.operators.activation import ACTIVATIONS
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.pooling import AveragePool, MaxPool
from mlhood.errors import CompilerError, MlhoodError
from mlhood.exchange import export
from mlhood.models import gpt_block, vit_block
from tests.tools.compiler.conformance import cases, passes

REFUSED = {"Resize", "GridSample"}
REFUSED |= {"Dynamic"}  # the operator that it holds has a rule, or is refused


def node_tests():
    """Return the first test of each ONNX operator that the compiler imports."""
    found = {}
    for case in cases():
        if case.suite == "node" and len(case.operators) == 1 and "expanded" not in case.name:
            found.setdefault(next(iter(case.operators)), case)
    return [case for name, case in sorted(found.items()) if name in IMPORT_RULES]


def test_the_node_tests_pass():
    selected, refused, data_dependent, failed = node_tests(), set(), set(), []
    assert len(selected) > 80
    for case in selected:
        try:
            case.run(backend="xla")
        except (MlhoodError, AssertionError) as error:
            if isinstance(error, CompilerError) and "does not have this operator" in error.what:
                refused.add(error.parts["got"])
            elif isinstance(error, CompilerError) and "must be known before the run" in error.what:
                data_dependent.add(error.parts["got"])
            elif passes(case):
                failed.append(case.name)
    assert failed == []
    assert refused <= REFUSED
    assert data_dependent <= {"Col2Im", "Compress", "NonMaxSuppression", "NonZero", "Unique"}


def graph_of(operator, *types, constants=()):
    """Return a graph of one node, and random inputs for it."""
    graph = Graph()
    values = [graph.placeholder(f"x{i}", type) for i, type in enumerate(types)]
    values[1:1] = [graph.constant(f"c{i}", array) for i, array in enumerate(constants)]
    graph.output(graph.add(operator, *values, name="node").outputs[0], "y")
    return graph, random_inputs({name: value.type for name, value in graph.placeholders.items()}, {"n": 2})


def assert_matches_interpreter(graph, inputs):
    (expected,), (got,) = (target(graph).run(inputs).values() for target in (Interpreter, Xla))
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "x", "w"),
    [
        (Conv((2, 1), (1, 0, 0, 2), (1, 2), 1), (5, 9, 8), (6, 5, 3, 2)),
        (Conv((1, 1), (2, 2, 2, 2), (2, 2), 4), (8, 7, 7), (12, 2, 3, 3)),
        (Conv((2, 2), (1, 1, 1, 1), (1, 1), 6), (6, 8, 8), (6, 1, 3, 3)),
        (Conv((3,), (0, 1), (1,), 1), (3, 11), (4, 3, 4)),
        (Conv((1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2), 1), (2, 4, 5, 6), (3, 2, 2, 3, 2)),
    ],
    ids=["pads and dilation", "groups", "depthwise", "one axis", "three axes"],
)
def test_convolutions(operator, x, w):
    rng = np.random.default_rng(0)
    constants = rng.standard_normal(w, np.float32), rng.standard_normal(w[0], np.float32)
    assert_matches_interpreter(*graph_of(operator, TensorType("float32", ("n", *x)), constants=constants))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_the_residual_branch_of_a_convolution(name):
    activation = {"Clip": ("Clip", -0.5, 0.5), "LeakyRelu": ("LeakyRelu", 0.1)}.get(name, (name,))
    operator = Conv((1, 1), (1, 1, 1, 1), (1, 1), activation=activation)
    rng = np.random.default_rng(0)
    constants = rng.standard_normal((4, 3, 3, 3), np.float32), rng.standard_normal(4, np.float32)
    types = TensorType("float32", ("n", 3, 6, 6)), TensorType("float32", ("n", 4, 6, 6))
    assert_matches_interpreter(*graph_of(operator, *types, constants=constants))


@pytest.mark.parametrize("size", [7, 8, 9])
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("pool", [MaxPool, lambda *args: AveragePool(*args, True), AveragePool])
def test_pools_with_any_rest(pool, ceil, size):
    operator = pool((3, 2), (3, 2), (1, 0, 1, 1), (1, 1), ceil)
    assert_matches_interpreter(*graph_of(operator, TensorType("float32", ("n", 2, size, size))))


@pytest.mark.parametrize("element", ["uint8", "int8"])
def test_pools_of_integers(element):
    operator = MaxPool((2, 2), (1, 1), (1, 1, 1, 1), (1, 1))
    assert_matches_interpreter(*graph_of(operator, TensorType(element, ("n", 2, 5, 5))))


def test_lenet_agrees_in_every_value(lenet_onnx):
    graph = mlhood.compile(lenet_onnx, stop_after="optimized")
    assert isinstance(graph, Graph)
    inputs = random_inputs({name: value.type for name, value in graph.placeholders.items()}, {"batch": 3})
    runner = Xla(graph)
    comparison = compare(graph, runner, inputs)
    assert comparison.agrees, comparison
    assert len(comparison.differences) == len(graph.nodes)
    (whole,) = runner.run(inputs).values()  # as one function
    (expected,) = Interpreter(graph).run(inputs).values()
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-4)
    assert list(profile(runner, inputs, rounds=1).index) == [node.name for node in graph.topological()]


@pytest.mark.parametrize(
    ("build", "shape"),
    [(lambda: vit_block(width=48), (20, 48)), (lambda: gpt_block(width=48), (20, 48))],
    ids=["ViT", "GPT"],
)
def test_transformers(build, shape, tmp_path):
    names = {"input_names": ["tokens"], "output_names": ["features"]}
    path = export(build(), np.zeros((1, *shape), np.float32), tmp_path / "model.onnx", **names)
    for stage in ("hir", "optimized"):
        graph = mlhood.compile(path, stop_after=stage)
        assert isinstance(graph, Graph)
        inputs = random_inputs({name: value.type for name, value in graph.placeholders.items()}, {"batch": 2})
        (expected,), (got,) = (target(graph).run(inputs).values() for target in (Interpreter, Xla))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_outputs_keep_their_order_and_their_64_bits(new_model):
    nodes = [helper.make_node("Neg", ["x"], ["z"]), helper.make_node("Add", ["x", "x"], ["a"])]
    model = new_model(nodes, {"x": (TensorProto.INT64, ["n"])}, outputs=("z", "a"))
    outputs = mlhood.compile(model, target="xla").run(x=np.array([2**40], np.int64))
    assert {name: (y.dtype.name, y.item()) for name, y in outputs.items()} == {
        "z": ("int64", -(2**40)),
        "a": ("int64", 2**41),
    }
    assert list(outputs) == ["z", "a"]


def test_an_operator_without_a_rule_is_refused_when_the_graph_is_prepared(lenet_onnx, new_model):
    lowered = mlhood.compile(lenet_onnx, target="cpu", stop_after="lowered")
    assert isinstance(lowered, Graph)
    with pytest.raises(CompilerError, match="does not have this operator") as caught:
        Xla(lowered)
    assert "(BlockedConv)" in caught.value.parts["where"]
    assert "interpreter" in caught.value.parts["what to do"]
    with_indices = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (1, 1, 4, 4)))
    graph.output(graph.add(with_indices, x).outputs[1], "indices")
    with pytest.raises(CompilerError, match="with indices"):
        Xla(graph)
