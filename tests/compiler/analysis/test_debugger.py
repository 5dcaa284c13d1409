"""The debugger finds the one node that a target computes wrongly, and nothing in a correct target."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import mlhood
from mlhood.cli import app
from mlhood.compiler.analysis.debugger import compare, difference
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.kernels import Kernels
from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.hir.inputs import random_inputs
from mlhood.compiler.hir.values import Value
from mlhood.errors import CompilerError
from mlhood.kernels import CONV2D


@pytest.fixture(scope="module")
def path(lenet_onnx):
    return lenet_onnx


@pytest.fixture(scope="module")
def graph(path):
    graph = mlhood.compile(path, stop_after="optimized")
    assert isinstance(graph, Graph)
    return graph


@pytest.fixture(scope="module")
def quantized(path):
    graph = mlhood.compile(path, quantization="symmetric", stop_after="quantized")
    assert isinstance(graph, Graph)
    return graph


def inputs_of(graph, **dims):
    return random_inputs({name: value.type for name, value in graph.placeholders.items()}, dims)


def convolution(x, w, bias, stride, padding):
    return CONV2D["direct"](x, w, bias, stride=stride, padding=padding)


def wrong_in_second(x, w, bias, stride, padding):
    """Convolve, with one wrong element where there are 16 channels: in the second layer of LeNet."""
    y = convolution(x, w, bias, stride, padding)
    if len(w) == 16:
        y[0, 3, 4, 5] += 100
    return y


class Wrong(Interpreter):
    """The interpreter with one integer that is too large by 1, in the result of one node."""

    def __init__(self, graph, name):
        self.wrong = name
        super().__init__(graph)

    def implementation(self, node):
        compute = super().implementation(node)
        if node.name != self.wrong:
            return compute

        def run(*arrays):
            (y,) = compute(*arrays)
            y = y.copy()
            y.flat[7] += 1 if y.flat[7] < 127 else -1
            return (y,)

        return run


def next_above(*arguments):
    """Convolve, and round the results up: which differ on every processor, as those of another order of sums may."""
    return np.nextafter(convolution(*arguments), np.float32(np.inf))


def test_a_correct_function_agrees_in_all_values(graph):
    comparison = compare(graph, Kernels(graph, next_above), inputs_of(graph, batch=2))
    assert comparison.agrees
    assert len(comparison.differences) == len(graph.nodes)
    assert not comparison.unseen
    assert 0 < max(difference.error for difference in comparison.differences) < 1e-5
    assert "values agree with the interpreter; largest error" in str(comparison)


def test_the_first_wrong_layer_is_found(graph):
    comparison = compare(graph, Kernels(graph, wrong_in_second), inputs_of(graph))
    first = comparison.first_difference
    assert first is not None
    wrong = first.value.producer
    assert wrong is not None
    assert wrong.operator.name == "Conv"
    assert wrong is [node for node in graph.topological() if node.operator.name == "Conv"][1]
    assert first.index == (0, 3, 4, 5)
    assert first.count == 1
    behind = comparison.differences[comparison.differences.index(first) :]
    assert not any(difference.agrees for difference in behind)
    text = str(comparison)
    assert f"{len(graph.nodes) - len(behind)} of {len(graph.nodes)} values agree" in text
    assert f"the first that differs: value {wrong.outputs[0].name!r} of {wrong.where}" in text
    assert "element [0, 3, 4, 5]; 1 of 1,600 elements differ" in text


def test_one_wrong_integer_is_found_in_a_quantised_graph(quantized):
    inputs = inputs_of(quantized)
    assert compare(quantized, Interpreter(quantized), inputs).agrees
    wrong = next(node for node in quantized.topological() if node.operator.name == "QuantizedConv")
    first = compare(quantized, Wrong(quantized, wrong.name), inputs).first_difference
    assert first is not None
    assert first.value is wrong.outputs[0]
    assert abs(first.got - first.expected) == 1
    assert first.count == 1


class Fused:
    """A target that shows only some of the values, the error being in the first; its output is not shown."""

    def __init__(self, graph, shown, wrong):
        self.runner, self.shown = Wrong(graph, wrong), shown

    def run(self, inputs, observe=None):
        def filtered(value, array):
            if observe is not None and value.name in self.shown:
                observe(Value("renamed" if value.name == "third" else value.name, value.type), array)

        return self.runner.run(inputs, filtered)


def chain(length):
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], f"n{i + 1}") for i in range(length)]
    graph = mlhood.compile(_model(nodes, f"v{length}"), stop_after="hir")
    assert isinstance(graph, Graph)
    return graph


def _model(nodes, output):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 20]) for name in ("v0", output)]
    return helper.make_model(helper.make_graph(nodes, "chain", values[:1], values[1:]), ir_version=8)


def test_values_that_the_target_has_fused_are_skipped_and_named():
    graph = chain(4)
    comparison = compare(graph, Fused(graph, {"v1", "v3"}, "n2"), inputs_of(graph))
    first = comparison.first_difference
    assert first is not None
    assert first.value.name == "v3"
    assert comparison.unseen == ("v2",)
    assert "not seen on the target: v2" in str(comparison)


def test_outputs_are_compared_even_if_the_target_shows_nothing():
    graph = chain(2)
    first = compare(graph, Fused(graph, set(), "n2"), inputs_of(graph)).first_difference
    assert first is not None
    assert first.value.name == "v2"


FLOAT = Value("y", TensorType("float32", (4,)))
NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("expected", "got", "agrees"),
    [
        ([100, 0, 1, 2], [100, 0.009, 1, 2], True),  # relative to the largest magnitude
        ([100, 0, 1, 2], [100, 0.011, 1, 2], False),
        ([0, 0, 0, 0], [0, 9e-7, 0, 0], True),
        ([NAN, INF, -INF, 1], [NAN, INF, -INF, 1], True),
        ([NAN, INF, 0, 1], [INF, NAN, 0, 1], False),
        ([0, INF, 0, 1], [0, -INF, 0, 1], False),
        ([0, 1, 2, 3], [0, 1, NAN, 3], False),
        ([0, 1, 2, INF], [0, 1, 2, 3], False),
    ],
)
def test_the_tolerance_of_floats(expected, got, agrees):
    result = difference(FLOAT, np.array(expected, np.float32), np.array(got, np.float32))
    assert result.agrees is agrees
    assert agrees or result.count


@pytest.mark.parametrize("element", ["int8", "int64", "uint64", "bool"])
def test_integers_are_equal(element):
    large = 1 if element == "bool" else np.iinfo(element).max
    value, expected = Value("y", TensorType(element, (2,))), np.array([large, large], element)
    assert difference(value, expected, expected).agrees
    wrong = difference(value, expected, np.array([large, large - 1], element))
    assert not wrong.agrees
    assert wrong.index == (1,)
    assert wrong.error > 0


@pytest.mark.parametrize("got", [np.zeros((2, 2), np.float32), np.zeros(4, np.float64)])
def test_another_shape_or_type_differs(got):
    wrong = difference(FLOAT, np.zeros(4, np.float32), got)
    assert not wrong.agrees
    assert f"got: {got.dtype.name}{list(got.shape)}" in str(wrong)


def test_random_inputs_are_reproducible_and_have_the_lengths():
    types = {
        "x": TensorType("float32", ("n", 3, "w")),
        "i": TensorType("int64", (50,)),
        "q": TensorType("int8", (2000,)),
        "b": TensorType("bool", ("n",)),
    }
    arrays = random_inputs(types, {"n": 4})
    assert {name: (array.dtype.name, array.shape) for name, array in arrays.items()} == {
        "x": ("float32", (4, 3, 1)),
        "i": ("int64", (50,)),
        "q": ("int8", (2000,)),
        "b": ("bool", (4,)),
    }
    assert set(arrays["i"]) == {0, 1}
    assert (arrays["q"].min(), arrays["q"].max()) == (-128, 127)
    for name, array in random_inputs(types, {"n": 4}).items():
        np.testing.assert_array_equal(array, arrays[name])
    assert (random_inputs(types, {"n": 4}, seed=1)["x"] != arrays["x"]).any()
    with pytest.raises(CompilerError, match="no such dynamic axis"):
        random_inputs(types, {"batch": 2})


def command(*args):
    return CliRunner().invoke(app, ["compile", *map(str, args)])


def test_the_command_reports_a_difference(path, monkeypatch):
    monkeypatch.setitem(TARGETS, "wrong", lambda graph: Kernels(graph, wrong_in_second))
    good = command(path, "--compare", "direct", "--dim", "batch=3")
    assert good.exit_code == 0, good.output
    assert "values agree with the interpreter" in good.output
    bad = command(path, "--compare", "wrong")
    assert bad.exit_code == 1
    assert isinstance(bad.exception, SystemExit)
    assert "the first that differs" in bad.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--compare", "gpu"), "unknown target"),
        (("--compare", "direct", "--stop-after", "lir"), "not a program"),
        (("--compare", "direct", "--dim", "rows=2"), "no such dynamic axis"),
    ],
)
def test_the_command_rejects_invalid_options(path, options, message):
    assert message in str(command(path, *options).exception)
