"""The quantised graph: how each operator is rewritten, and which names and values are preserved."""

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.hir import Graph, TensorType, verify
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add, Mul, Sub
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, Elu, LeakyRelu, Relu
from mlhood.compiler.operators.matrix import FullyConnected, MatMul
from mlhood.compiler.operators.movement import Concat, Slice, Transpose
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.shape import Flatten, Reshape
from mlhood.compiler.quantize import SCHEMAS, Profile, Recipe, kept_in_float, profile, quantize, sqnr
from mlhood.errors import CompilerError

RECIPES = [
    Recipe(schema, element, per_channel)
    for schema in SCHEMAS
    for element, per_channel in (("int8", False), ("int8", True), ("int16", True), ("uint8", False))
]
OPERATORS = {operator.__name__: operator() for operator in FUNCTIONS}


def label(recipe):
    return f"{recipe.schema}-{recipe.element}" + ("-channels" if recipe.per_channel else "")


LENET = """\
graph "main_graph"
  image.quantized: int8 = Quantize(image)
  relu: int8 = QuantizedConv conv1(image.quantized, conv1.weight, conv1.bias)
  maxpool: int8 = MaxPool maxpool(relu)
  relu_1: int8 = QuantizedConv conv2(maxpool, conv2.weight, conv2.bias)
  maxpool_1: int8 = MaxPool maxpool_1(relu_1)
  reshape: int8 = {reshape} reshape(maxpool_1)
  relu_2: int8 = QuantizedFullyConnected fc1(reshape, fc1.weight, fc1.bias)
  relu_3: int8 = QuantizedFullyConnected fc2(relu_2, fc2.weight, fc2.bias)
  logits: int8 = QuantizedFullyConnected fc3(relu_3, fc3.weight, fc3.bias)
  logits.dequantized: float32 = Dequantize(logits)
"""


def outline(graph):
    lines = [f'graph "{graph.name}"']
    for node in graph.topological():
        (y,) = node.outputs
        name = "" if node.name == y.name and "quantized" in y.name else f" {node.name}"
        inputs = ", ".join(value.name for value in node.inputs if value is not None)
        lines.append(f"  {y.name}: {y.type.element} = {node.operator.name}{name}({inputs})")
    return "\n".join(lines) + "\n"


def test_lenet_keeps_its_names(lenet_graph, lenet_profile):
    quantized = quantize(lenet_graph, lenet_profile)
    verify(quantized)
    expected = LENET.format(reshape=lenet_graph.nodes["reshape"].operator.name)
    assert outline(quantized) == expected
    assert list(quantized.outputs) == ["logits"]
    assert quantized.constants.keys() == lenet_graph.constants.keys()
    assert kept_in_float(quantized) == []
    assert to_text(parse(to_text(quantized), constants_by_digest(quantized))) == to_text(quantized)


@pytest.mark.parametrize("recipe", RECIPES, ids=label)
def test_lenet_with_every_recipe(lenet_graph, lenet_profile, data, recipe):
    before = to_text(lenet_graph)
    quantized = quantize(lenet_graph, lenet_profile, recipe)
    verify(quantized)
    assert to_text(lenet_graph) == before
    for name, value in quantized.constants.items():
        kind = "int32" if name.endswith("bias") else recipe.weight_element
        channels = recipe.per_channel and len(value.data)
        assert (value.type.element, len(value.type.quantization.scale)) == (kind, channels or 1)
    images = {"image": data.test_images[:100]}
    expected, got = Interpreter(lenet_graph).run(images)["logits"], Interpreter(quantized).run(images)["logits"]
    assert sqnr(expected, got) > {"int16": 70, "int8": 33, "uint8": 33}[recipe.element]
    assert (expected.argmax(1) == got.argmax(1)).mean() >= 0.98


def test_powers_of_two_everywhere(lenet_graph, lenet_profile):
    quantized = quantize(lenet_graph, lenet_profile, Recipe("power_of_two", per_channel=True))
    for value in quantized.values():
        if value.type.quantization:
            assert {np.frexp(scale)[0] for scale in value.type.quantization.scale} == {0.5}
            assert set(value.type.quantization.offset) == {0}


@pytest.mark.parametrize("element", ["int8", "int16"])
def test_branches(branches_graph, branches_profile, images, element):
    quantized = quantize(branches_graph, branches_profile, Recipe(element=element))
    verify(quantized)
    operators = [node.operator.name for node in quantized.topological()]
    tables = operators.count("Lookup")
    assert (tables, len(kept_in_float(quantized))) == ((2, 0) if element == "int8" else (0, 2))
    assert {"QuantizedConv", "QuantizedAveragePool", "QuantizedGlobalAveragePool", "Concat"} <= set(operators)
    expected, got = (Interpreter(g).run({"image": images})["logits"] for g in (branches_graph, quantized))
    assert sqnr(expected, got) > {"int8": 20, "int16": 60}[element]


# -- single operators


def single_operator(operator, *shapes, constants=(), seed=0):
    """Return a graph of one operator, and random inputs for it."""
    draw = np.random.default_rng(seed)
    graph = Graph()
    inputs = {f"x{i}": draw.standard_normal(shape, np.float32) for i, shape in enumerate(shapes)}
    values = [graph.placeholder(name, TensorType("float32", x.shape)) for name, x in inputs.items()]
    values += [graph.constant(f"c{i}", np.asarray(c, np.float32)) for i, c in enumerate(constants)]
    node = graph.add(operator, *values, name="node", outputs=["y"])
    graph.output(node.outputs[0])
    return graph, inputs


def quantize_and_verify(graph, inputs, recipe=None):
    quantized = quantize(graph, profile(graph, [inputs]), recipe or Recipe())
    verify(quantized)
    return quantized


POOL = ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))
IMAGE = (2, 4, 6, 6)


@pytest.mark.parametrize("element", ["int8", "int16", "uint8"])
@pytest.mark.parametrize(
    ("operator", "shapes", "name"),
    [
        (Add(), [IMAGE, (4, 1, 1)], "QuantizedAdd"),
        (Mul(), [IMAGE, IMAGE], "QuantizedMul"),
        (AddActivation(("Relu",)), [IMAGE, IMAGE], "QuantizedAdd"),
        (AddActivation(("Clip", 0.0, 6.0)), [IMAGE, IMAGE], "QuantizedAdd"),
        (AddActivation(("LeakyRelu", 0.2)), [IMAGE, IMAGE], "QuantizedAdd"),
        (Relu(), [IMAGE], "Rescale"),
        (Clip(-0.5, 0.5), [IMAGE], "Rescale"),
        (LeakyRelu(0.1), [IMAGE], "Rescale"),
        (MaxPool(*POOL), [IMAGE], "MaxPool"),
        (GlobalMaxPool(), [IMAGE], "GlobalMaxPool"),
        (AveragePool(*POOL), [IMAGE], "QuantizedAveragePool"),
        (AveragePool(*POOL, count_pads=True), [IMAGE], "QuantizedAveragePool"),
        (GlobalAveragePool(), [IMAGE], "QuantizedGlobalAveragePool"),
        (Concat(1), [IMAGE, (2, 1, 6, 6)], "Concat"),
    ],
)
def test_one_operator(operator, shapes, name, element):
    graph, inputs = single_operator(operator, *shapes)
    quantized = quantize_and_verify(graph, inputs, Recipe(element=element))
    assert quantized.nodes["node"].operator.name == name
    assert quantized.nodes["node"].outputs[0].name == "y"
    expected, got = (Interpreter(g).run(inputs)["y"] for g in (graph, quantized))
    step = quantized.value("y").type.quantization.scale[0]
    read = sum(value.type.quantization.scale[0] for value in quantized.nodes["node"].inputs if value is not None)
    assert np.abs(got - expected).max() <= 0.51 * step + 3.1 * read


@pytest.mark.parametrize("function", ["Sigmoid", "Tanh", "HardSwish", "Erf", "Abs", "Neg", "Softsign", "Elu"])
def test_functions_become_tables(function):
    graph, inputs = single_operator(OPERATORS.get(function) or Elu(), (40,))
    quantized = quantize_and_verify(graph, inputs)
    assert quantized.nodes["node"].operator.name == "Lookup"
    expected, got = (Interpreter(g).run(inputs)["y"] for g in (graph, quantized))
    step, read = (quantized.value(name).type.quantization.scale[0] for name in ("y", "x0.quantized"))
    assert np.abs(got - expected).max() <= 0.51 * step + 0.6 * read
    assert kept_in_float(quantize_and_verify(graph, inputs, Recipe(element="int16"))) == [f"node ({function})"]


@pytest.mark.parametrize("activation", [("Sigmoid",), ("Tanh",), ("HardSwish",)])
@pytest.mark.parametrize("element", ["int8", "int16"])
def test_fused_functions(activation, element):
    w = np.random.default_rng(1).standard_normal((5, 30)) / 4
    graph, inputs = single_operator(FullyConnected(activation), (60, 30), constants=[w, np.full(5, 0.3)])
    quantized = quantize_and_verify(graph, inputs, Recipe(element=element))
    table = element == "int8"
    assert quantized.nodes["node.activation"].operator.name == ("Lookup" if table else activation[0])
    assert quantized.nodes["node"].operator.name == "QuantizedFullyConnected"
    expected, got = (Interpreter(g).run(inputs)["y"] for g in (graph, quantized))
    assert sqnr(expected, got) > (30 if table else 60)


@pytest.mark.parametrize(
    ("operator", "shapes"), [(Softmax((1,)), [(3, 4)]), (MatMul(), [(3, 4), (4, 2)]), (Sub(), [(3, 4), (4,)])]
)
def test_operators_without_a_rule_stay_float(operator, shapes):
    graph, inputs = single_operator(operator, *shapes)
    quantized = quantize_and_verify(graph, inputs)
    assert to_text(quantized) == to_text(graph)
    assert kept_in_float(quantized) == [f"node ({operator.name})"]


def test_arithmetic_between_operators_in_float_stays_float():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (3, 4)))
    (scores,) = graph.add(Softmax((1,)), x, name="softmax").outputs
    (scaled,) = graph.add(Mul(), scores, graph.constant("half", np.float32(0.5)), name="scale").outputs
    graph.output(graph.add(Softmax((1,)), scaled, name="again").outputs[0], "y")
    inputs = {"x": np.random.default_rng(0).standard_normal((3, 4), np.float32)}
    assert to_text(quantize_and_verify(graph, inputs)) == to_text(graph)


@pytest.mark.parametrize("hidden", [-np.inf, -1e9, -1e4])
def test_masks_stay_float(hidden):
    mask = np.where(np.tri(4, dtype=bool), 0, hidden).astype(np.float32)
    graph, inputs = single_operator(Add(), (4, 4), constants=[mask])
    assert kept_in_float(quantize_and_verify(graph, inputs)) == ["node (Add)"]


def test_layers_without_constant_weights_stay_float():
    graph, inputs = single_operator(FullyConnected(), (3, 4), (5, 4))
    assert kept_in_float(quantize_and_verify(graph, inputs)) == ["node (FullyConnected)"]


def chain(*operators, shape=IMAGE):
    """Return a chain of a Relu and unary operators, and random inputs for it."""
    graph = Graph()
    value = graph.placeholder("x", TensorType("float32", shape))
    for i, operator in enumerate((Relu(), *operators)):
        (value,) = graph.add(operator, value, name=f"node{i}", outputs=[f"v{i}"]).outputs
    graph.output(value, "y")
    return graph, {"x": np.random.default_rng(0).standard_normal(shape, np.float32)}


@pytest.mark.parametrize(
    "operator",
    [
        Reshape((2, -1)),
        Flatten(),
        Transpose((0, 2, 3, 1)),
        Slice((1,), (3,), (2,), (1,)),
        MaxPool(*POOL),
        Pad((0, 0, 1, 1) * 2),
    ],
)
def test_operators_that_move_elements_keep_the_parameters(operator):
    graph, inputs = chain(operator)
    quantized = quantize_and_verify(graph, inputs)
    assert quantized.value("v1").type.quantization == quantized.value("v0").type.quantization
    assert quantized.nodes["node1"].operator.name == operator.name
    expected, got = (Interpreter(g).run(inputs)["y"] for g in (graph, quantized))
    steps = sum(quantized.value(name).type.quantization.scale[0] for name in ("x.quantized", "v0"))
    assert np.abs(expected - got).max() <= 0.51 * steps


def test_padding_with_a_value_out_of_range_uses_the_parameters_of_the_result():
    graph, inputs = chain(Pad((0, 0, 1, 1) * 2, value=-50.0))
    quantized = quantize_and_verify(graph, inputs)
    assert quantized.nodes["v0.rescaled"].operator.name == "Rescale"
    got = Interpreter(quantized).run(inputs)["y"]
    assert got.min() == pytest.approx(-50, abs=0.2)


def test_integers_of_the_float_graph_are_unchanged():
    graph = Graph()
    x = graph.placeholder("x", TensorType("int64", (3,)))
    constant = graph.constant("constant", np.array([1, 2, 3]))
    (total,) = graph.add(Add(), x, constant, outputs=["total"]).outputs
    (real,) = graph.add(Cast("float32"), total, outputs=["real"]).outputs
    graph.output(graph.add(Relu(), real, outputs=["y"]).outputs[0])
    inputs = {"x": np.array([-5, 0, 5])}
    quantized = quantize_and_verify(graph, inputs)
    assert quantized.value("total").type == TensorType("int64", (3,))
    assert kept_in_float(quantized) == ["cast (Cast)"]
    np.testing.assert_allclose(Interpreter(quantized).run(inputs)["y"], [0, 2, 8], atol=0.03)


def test_a_value_is_converted_once_for_all_its_users():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (4, 3)))
    w = graph.constant("w", np.eye(3, dtype=np.float32))
    parts = [graph.add(FullyConnected(), x, w, name=f"layer{i}").outputs[0] for i in range(3)]
    (y,) = graph.add(Concat(1), *parts, name="join").outputs
    graph.output(graph.add(Softmax((1,)), y, name="softmax").outputs[0])
    graph.output(y, "joined")
    quantized = quantize_and_verify(graph, {"x": np.ones((4, 3), np.float32)})
    names = [node.operator.name for node in quantized.topological()]
    assert names.count("Quantize") == names.count("Dequantize") == 1
    assert list(quantized.constants) == ["w"]


# -- weights and biases


def test_a_weight_shared_by_two_layers_may_need_two_scales():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (4, 3)))
    w = graph.constant("w", np.full((2, 3), 1e-6, np.float32))
    biases = [graph.constant("small", np.float32([0, 1e-5])), graph.constant("large", np.float32([5, -7000]))]
    for i, bias in enumerate(biases):
        graph.output(graph.add(FullyConnected(), x, w, bias, name=f"layer{i}").outputs[0])
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 3), np.float32)}
    quantized = quantize_and_verify(graph, inputs)
    assert len(quantized.constants) == 4
    expected, got = Interpreter(graph).run(inputs), Interpreter(quantized).run(inputs)
    for name in expected:
        step = quantized.value(name).type.quantization.scale[0]
        assert np.abs(expected[name] - got[name]).max() <= 0.6 * step + 1e-7


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("element", ["int8", "int16"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_a_bias_never_overflows(schema, element, per_channel):
    w = np.array([[1e-9, -1e-9, 0], [1, 2, 3], [0, 0, 0], [1e-30, 0, 0]]) * (1 if per_channel else 1e-9)
    bias = np.array([1e4, -1, 3, -2]) if per_channel else np.array([100, -100, 3, -2])
    graph, inputs = single_operator(FullyConnected(), (20, 3), constants=[w, bias])
    quantized = quantize_and_verify(graph, inputs, Recipe(schema, element, per_channel))
    stored = quantized.constants["c1"]
    assert np.abs(stored.data.astype(np.int64)).max() < 2**31 - 1
    expected, got = (Interpreter(g).run(inputs)["y"] for g in (graph, quantized))
    step = quantized.value("y").type.quantization.scale[0]
    assert np.abs(expected - got).max() <= 0.6 * step + 0.2  # the weights' own error, 1e4 steps below the biases


def test_large_graphs_take_linear_time():
    graph = Graph()
    value = graph.placeholder("x", TensorType("float32", (2,)))
    bias = graph.constant("bias", np.float32([0.001, -0.001]))
    for i in range(3000):
        (value,) = graph.add(Add() if i % 2 else Relu(), *((value, bias) if i % 2 else (value,)), name=f"n{i}").outputs
    graph.output(value)
    quantized = quantize_and_verify(graph, {"x": np.float32([1, 2])})
    assert len(quantized.nodes) == 3002


# -- invalid input


def test_a_profile_of_another_graph(lenet_graph, branches_profile):
    with pytest.raises(CompilerError, match="belongs to another graph"):
        quantize(lenet_graph, branches_profile)


def test_a_profile_without_a_value_leaves_it_float(lenet_graph, lenet_profile):
    distributions = {name: value for name, value in lenet_profile.distributions.items() if name != "relu_2"}
    quantized = quantize(lenet_graph, Profile(lenet_profile.graph, distributions))
    verify(quantized)
    assert kept_in_float(quantized) == ["fc1 (FullyConnected)", "fc2 (FullyConnected)"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"schema": "other"},
        {"element": "int4"},
        {"headroom": -0.1},
        {"headroom": float("nan")},
    ],
)
def test_invalid_recipes(arguments):
    with pytest.raises(CompilerError):
        Recipe(**arguments)


@pytest.mark.parametrize("window", [Conv((1, 1), (0,) * 4, (1, 1), 2), Conv((1, 1), (1,) * 4, (1, 1), 4)])
def test_groups(window):
    w = np.random.default_rng(2).standard_normal((4, 4 // window.group, 3, 3)) / 4
    graph, inputs = single_operator(window, IMAGE, constants=[w])
    quantized = quantize_and_verify(graph, inputs, Recipe(per_channel=True))
    expected, got = (Interpreter(g).run(inputs)["y"] for g in (graph, quantized))
    assert sqnr(expected, got) > 35


@pytest.mark.parametrize("recipe", RECIPES, ids=label)
def test_xla_computes_the_same_integers(recipe, branches_graph, branches_profile, images):
    graph = quantize(branches_graph, branches_profile, recipe)
    (expected,), (got,) = (target(graph).run({"image": images[:3]}).values() for target in (Interpreter, Xla))
    # without tables for 16 bits, tanh and sigmoid are computed with floats, whose last bits differ
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 if recipe.element == "int16" else 0)
