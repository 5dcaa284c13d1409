"""From graphs to ONNX: valid models, which ONNX Runtime runs as the interpreter does, and which come back."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, TensorType, verify
from mlhood.compiler.onnx.exporter import NEWEST_OPSET, OLDEST_OPSET, to_onnx
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.chain import ElementwiseChain
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, Elu, Gelu, HardSigmoid, LeakyRelu, Relu, Round, Silu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.passes import optimize
from mlhood.errors import CompilerError
from mlhood.exchange import run as run_onnxruntime

FLOAT = TensorProto.FLOAT


def exported(graph, **options):
    model = to_onnx(graph, **options)
    onnx.checker.check_model(model, full_check=True)
    again = import_model(model)
    verify(again)
    assert list(again.outputs) == list(graph.outputs)
    assert again.placeholders.keys() == graph.placeholders.keys()
    return model, again


def check(graph, inputs, **options):
    """ONNX Runtime runs the exported model as the interpreter runs the graph, and so does what is imported again."""
    model, again = exported(graph, **options)
    wanted = Interpreter(graph).run(inputs)
    for got in (run_onnxruntime(model, threads=1, **inputs), Interpreter(again).run(inputs)):
        assert got.keys() == wanted.keys()
        for name, array in wanted.items():
            assert got[name].dtype == array.dtype
            np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("optimized", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_resnet(resnet18_bn_onnx, optimized):
    graph = import_model(resnet18_bn_onnx)
    graph = optimize(graph) if optimized else graph
    check(graph, {"image": np.random.default_rng(0).standard_normal((2, 3, 64, 64), np.float32)})


@pytest.mark.parametrize("optimized", [False, True])
def test_tf_lenet(tf_lenet, optimized):
    graph = optimize(import_model(tf_lenet)) if optimized else import_model(tf_lenet)
    (name,) = graph.placeholders
    check(graph, {name: np.random.default_rng(0).standard_normal((2, 32, 32, 1), np.float32)})


def test_nodes_and_values_keep_their_names(lenet_onnx):
    graph = import_model(lenet_onnx)
    nodes = {node.name: node.output[0] for node in to_onnx(graph).graph.node}
    assert nodes == {node.name: node.outputs[0].name for node in graph.topological()}
    fused = optimize(graph)
    nodes = {node.name: node.output[0] for node in to_onnx(fused).graph.node}
    assert nodes["conv1/Relu"] == fused.nodes["conv1"].outputs[0].name
    assert nodes["conv1"] == "conv1.conv"


@pytest.mark.parametrize("opset", [OLDEST_OPSET, 20, NEWEST_OPSET])
def test_opsets(lenet_onnx, opset):
    check(optimize(import_model(lenet_onnx)), {"image": np.ones((2, 1, 32, 32), np.float32)}, opset=opset)


node = helper.make_node


@pytest.mark.parametrize(
    "operator", [Relu(), Round(), LeakyRelu(0.2), Elu(), HardSigmoid(), Gelu(), Gelu("tanh"), Silu(), Clip(None, 1.0)]
)
def test_functions(operator):
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", ("n", 5)))
    graph.output(graph.add(operator, x).outputs[0], "y")
    check(graph, {"x": np.linspace(-3, 3, 20, dtype=np.float32).reshape(4, 5)})


def test_a_dense_layer_of_more_axes():
    draw, graph = np.random.default_rng(0), Graph()
    x = graph.placeholder("x", TensorType("float32", ("n", 3, 5)))
    w, b = (graph.constant("w", draw.standard_normal(shape, np.float32)) for shape in ((4, 5), (4,)))
    graph.output(graph.add(FullyConnected(("Relu",)), x, w, b).outputs[0], "y")
    graph.output(graph.add(FullyConnected(), x, w).outputs[0], "z")
    check(graph, {"x": draw.standard_normal((2, 3, 5), np.float32)})


def test_outputs_that_are_inputs_and_values_of_two_names():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (3,)))
    (y,) = graph.add(Relu(), x, outputs=["a"]).outputs
    (z,) = graph.add(Relu(), y, outputs=["b"]).outputs
    for name, value in (("same", x), ("b", y), ("again", y), ("a", z), ("one", graph.constant("c", np.float32([1])))):
        graph.output(value, name)
    check(graph, {"x": np.float32([-1, 0, 1])})


# -- what cannot be


def test_an_operator_that_onnx_does_not_have():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (2, 3)))
    graph.output(graph.add(ElementwiseChain((("Relu", (), (0,)),)), x, name="first").outputs[0])
    with pytest.raises(CompilerError, match="first"):
        to_onnx(graph)


def test_a_softmax_over_two_axes():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (2, 3)))
    graph.output(graph.add(Softmax((0, 1)), x, name="wide").outputs[0])
    with pytest.raises(CompilerError, match="wide"):
        to_onnx(graph)


@pytest.mark.parametrize("opset", [17, NEWEST_OPSET + 1])
def test_opsets_that_are_not_written(lenet_onnx, opset):
    with pytest.raises(CompilerError, match="opset"):
        to_onnx(import_model(lenet_onnx), opset=opset)


def test_names_of_functions_are_onnx_s():
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert {one.__name__ for one in FUNCTIONS} <= known
