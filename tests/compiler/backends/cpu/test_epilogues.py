"""Activations in the epilogues of kernels: what is fused, and that the bits are those of a loop of its own."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.cpu import lowering
from mlhood.compiler.backends.cpu.lowering import (
    epilogue_of,
    fuse_epilogues,
    lower_for_cpu,
    split_activations,
)
from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.compile import compile
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.operators.arithmetic import Mul
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.errors import CompilerError
from tests.compiler.backends.cpu.comparing import assert_agree

Node = helper.make_node
# kernel -> channels, filters, width of the window, stride, groups, height and width of the image
CONVOLUTIONS = {
    "winograd": (32, 32, 3, 1, 1, 14),
    "direct 1x1": (32, 40, 1, 1, 1, 7),
    "direct, strided": (16, 24, 3, 2, 1, 9),
    "direct, of an image": (3, 20, 3, 1, 1, 8),
    "direct, plain": (6, 6, 3, 1, 3, 9),
    "depthwise": (20, 20, 3, 1, 20, 9),
}
NUMBERS = {"three": 3.0, "six": 6.0, "zero": 0.0}
ACTIVATIONS = {
    "HardSwish": [Node("HardSwish", ["c"], ["y"])],
    "HardSigmoid": [Node("HardSigmoid", ["c"], ["y"], alpha=0.3, beta=0.4)],
    "Sigmoid": [Node("Sigmoid", ["c"], ["y"])],
    "SiLU": [Node("Sigmoid", ["c"], ["s"]), Node("Mul", ["c", "s"], ["y"])],
    "LeakyRelu": [Node("LeakyRelu", ["c"], ["y"], alpha=0.2)],
    "Tanh": [Node("Tanh", ["c"], ["y"])],
    "Gelu": [Node("Gelu", ["c"], ["y"])],
    "Gelu by tanh": [Node("Gelu", ["c"], ["y"], approximate="tanh")],
    "Elu": [Node("Elu", ["c"], ["y"], alpha=0.7)],
    "HardSwish of parts": [
        Node("Add", ["c", "three"], ["a"]),
        Node("Clip", ["a", "zero", "six"], ["d"]),
        Node("Mul", ["c", "d"], ["m"]),
        Node("Div", ["m", "six"], ["y"]),
    ],
    "Tanh of Relu": [Node("Relu", ["c"], ["r"]), Node("Tanh", ["r"], ["y"])],
}


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(layer, inputs, weights, activation, outputs=("y",)):
    """Return a layer with the result c, and what follows it; c may be an output, too, which keeps them apart."""
    weights = {**weights, **{name: np.array(value, np.float32) for name, value in NUMBERS.items()}}
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in inputs.items()]
    rank = next(iter(inputs.values())).ndim
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank) for name in outputs]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([layer, *activation], "g", declared, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def convolution(kind, activation, outputs=("y",), residual=False):
    channels, filters, width, stride, group, size = CONVOLUTIONS[kind]
    window = {"strides": [stride] * 2, "pads": [width // 2] * 4, "group": group}
    layer = Node("Conv", ["x", "w", "b"], ["sum" if residual else "c"], **window)
    inputs = {"x": random(2, channels, size, size)}
    weights = {"w": random(filters, channels // group, width, width, seed=1), "b": random(filters, seed=2)}
    weights["w"] *= 2 / width / (channels // group) ** 0.5
    if residual:
        inputs["z"] = random(2, filters, size, size, seed=3)
        activation = [Node("Add", ["sum", "z"], ["c"]), *activation]
    return model(layer, inputs, weights, activation, outputs), inputs


def dense(activation, outputs=("y",)):
    layer, weights = Node("Gemm", ["x", "w", "b"], ["c"], transB=1), {"w": random(37, 48, seed=1) / 7}
    inputs = {"x": random(5, 48)}
    return model(layer, inputs, weights | {"b": random(37, seed=2)}, activation, outputs), inputs


def compiled(proto):
    data = proto.SerializeToString()
    return compile(data, target="cpu"), compile(data, stop_after="optimized")


def layers(executable):
    """Return the operators of a lowered graph that are no conversions of layouts."""
    return [n.operator.name for n in executable.graph.topological() if n.operator.name not in ("ToBlocked", "ToPlain")]


def check(proto, apart, inputs):
    """Check that an activation is fused, agrees with the interpreter, and has the bits of a loop of its own."""
    fused, optimized = compiled(proto)
    separate, _ = compiled(apart)
    outputs = fused.run(**inputs)
    assert len(layers(fused)) == 1 < len(layers(separate))
    assert_agree(optimized, outputs, inputs)
    np.testing.assert_array_equal(outputs["y"], separate.run(**inputs)["y"])
    return fused


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_activations_after_convolutions(kind, activation):
    nodes = ACTIVATIONS[activation]
    proto, inputs = convolution(kind, nodes)
    fused = check(proto, convolution(kind, nodes, ("y", "c"))[0], inputs)
    kernels = {step.kernel for step in fused.runner.plan((inputs["x"].shape,)).steps}
    assert kind.split(",")[0].split()[0] in kernels
    assert "interpreter" not in kernels


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_after_dense_layers(activation):
    nodes = ACTIVATIONS[activation]
    proto, inputs = dense(nodes)
    check(proto, dense(nodes, ("y", "c"))[0], inputs)


@pytest.mark.parametrize("kind", ["winograd", "direct 1x1", "direct, plain", "depthwise"])
def test_the_residual_branch_is_added_before_the_activation(kind):
    proto, inputs = convolution(kind, ACTIVATIONS["SiLU"], residual=True)
    check(proto, convolution(kind, ACTIVATIONS["SiLU"], ("y", "c"), residual=True)[0], inputs)


@pytest.mark.parametrize(
    "nodes",
    [
        [Node("Tanh", ["c"], ["t"]), Node("Add", ["t", "other"], ["y"])],
        [Node("Mul", ["c", "by_channel"], ["y"])],
        [
            Node("Tanh", ["c"], ["t"]),
            Node("GlobalAveragePool", ["c"], ["p"]),
            Node("Add", ["t", "p"], ["y"]),
        ],
    ],
    ids=["another input", "an array of constants", "another use"],
)
def test_what_reads_more_than_the_result_and_numbers_is_a_loop(nodes):
    proto, inputs = convolution("direct 1x1", nodes)
    constants = {"other": random(2, 40, 7, 7, seed=4), "by_channel": random(40, 1, 1, seed=5)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    fused, optimized = compiled(proto)
    assert_agree(optimized, fused.run(**inputs), inputs)
    operators = [node.operator for node in fused.graph.topological()]
    (layer,) = (operator for operator in operators if isinstance(operator, Conv))
    # the first one's Tanh has no other input, so only the sum is left; a product by channel is folded into the weights
    assert layer.activation == (("Tanh",) if "Tanh" in nodes[0].op_type and len(nodes) == 2 else ())


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_special_numbers(activation):
    nodes = ACTIVATIONS[activation]
    proto, inputs = convolution("direct 1x1", nodes)
    inputs["x"][0, 0, 0, :5] = np.inf, -np.inf, np.nan, 1e30, -1e30
    check(proto, convolution("direct 1x1", nodes, ("y", "c"))[0], inputs)


# -- the graph


@pytest.fixture
def graph():
    graph = Graph("epilogues")
    x = graph.placeholder("x", TensorType("float32", ("n", 2, 4, 4)))
    w = graph.constant("w", random(2, 2, 1, 1))
    graph.add(Conv((1, 1), (0, 0, 0, 0), (1, 1), 1, ("Relu",)), x, w, outputs=["c"])
    return graph


def test_an_activation_that_is_there_comes_first(graph):
    half = graph.constant("half", np.float32(0.5))
    graph.output(graph.add(Mul(), half, graph.value("c")).outputs[0], "y")
    before = Cpu(graph).run({"x": random(3, 2, 4, 4)})["y"]
    fuse_epilogues(graph)
    verify(graph)
    (node,) = graph.nodes.values()
    steps = (("Relu", (), (0,)), ("Constant", (0.5,), ()), ("Mul", (), (2, 1)))
    assert node.operator.activation == ("ElementwiseChain", steps)
    assert to_text(parse(to_text(graph), constants_by_digest(graph))) == to_text(graph)
    np.testing.assert_array_equal(Cpu(graph).run({"x": random(3, 2, 4, 4)})["y"], before)


def test_the_square_of_a_result_is_a_chain_of_one_step(graph):
    graph.output(graph.add(Mul(), graph.value("c"), graph.value("c")).outputs[0], "y")
    fuse_epilogues(graph)
    (node,) = graph.nodes.values()
    assert epilogue_of(node.operator.activation) == (("Relu", (), (0,)), ("Mul", (), (1, 1)))


def test_results_with_another_use_and_unknown_steps_are_left(graph, monkeypatch):
    y = graph.add(Relu(), graph.value("c")).outputs[0]
    graph.output(y, "y")
    with monkeypatch.context() as patch:
        patch.setattr(lowering, "OPERATIONS", {"Tanh"})
        fuse_epilogues(graph)
    assert len(graph.nodes) == 2
    graph.output(graph.value("c"), "c")
    fuse_epilogues(graph)
    assert len(graph.nodes) == 2


def test_activations_that_kernels_do_not_compute_are_split_off(graph, monkeypatch):
    dense_weight = graph.constant("dense", random(5, 4))
    y = graph.add(FullyConnected(("Tanh",)), graph.value("c"), dense_weight).outputs[0]
    graph.output(y, "y")
    monkeypatch.setattr(lowering, "OPERATIONS", {"Relu"})
    split_activations(graph)
    verify(graph)
    names = [node.operator.name for node in graph.topological()]
    assert names == ["Conv", "FullyConnected", "Tanh"]
    assert [node.operator.attributes.get("activation") for node in graph.topological()] == [("Relu",), (), None]


def test_a_chain_as_activation_has_one_input(graph):
    for steps in ((("Add", (), (0, 1)),), ()):
        with pytest.raises(CompilerError):
            graph.add(Conv((1, 1), (0, 0, 0, 0), (1, 1), 1, ("ElementwiseChain", steps)), *graph.placeholders.values())


@pytest.mark.parametrize("activation", ["SiLU", "HardSwish of parts"])
def test_a_lowered_graph_is_lowered_to_itself(activation):
    proto, _ = convolution("winograd", ACTIVATIONS[activation])
    lowered = compile(proto.SerializeToString(), target="cpu", stop_after="lowered")
    assert to_text(lower_for_cpu(lowered)) == to_text(lowered)
