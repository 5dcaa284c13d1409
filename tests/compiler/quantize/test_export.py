"""Export of quantised graphs as QDQ: ONNX Runtime and a re-import compute the same as our integers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, TensorType, verify
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.passes import optimize
from mlhood.compiler.quantize import SCHEMAS, Recipe, profile, quantize
from mlhood.errors import CompilerError
from mlhood.exchange import run as run_onnxruntime


def export_and_import(graph):
    model = to_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    imported = import_model(model)
    verify(imported)
    return model, imported


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("element", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_onnxruntime_computes_the_same(lenet_graph, lenet_profile, data, schema, element, per_channel):
    quantized = quantize(lenet_graph, lenet_profile, Recipe(schema, element, per_channel))
    images = {"image": data.test_images[:100]}
    model, imported = export_and_import(quantized)
    by_ort, by_import = (
        run_onnxruntime(model, threads=1, **images)["logits"],
        Interpreter(imported).run(images)["logits"],
    )
    expected = Interpreter(quantized).run(images)["logits"]
    step = quantized.value("logits").type.quantization.scale[0]
    for array in (by_ort, by_import):
        assert np.array_equal(array.argmax(1), expected.argmax(1))
        assert np.abs(array - expected).max() <= (3.01 if element == "int16" else 1.01) * step
        assert np.mean(np.abs(array - expected) > step / 2) < 0.1


@pytest.mark.parametrize("element", ["int8", "uint8", "int16"])
def test_branches(branches_graph, branches_profile, images, element):
    quantized = optimize(quantize(branches_graph, branches_profile, Recipe(element=element)))
    expected = Interpreter(quantized).run({"image": images})["logits"]
    model, imported = export_and_import(quantized)
    by_ort = run_onnxruntime(model, threads=1, image=images)["logits"]
    by_import = Interpreter(imported).run({"image": images})["logits"]
    step = quantized.value("logits").type.quantization.scale[0]
    for array in (by_ort, by_import):
        assert np.mean(array.argmax(1) == expected.argmax(1)) >= 0.95  # untrained: two logits may be a step apart
        assert np.abs(array - expected).max() <= (12 if element == "int16" else 2.01) * step


def test_weights_are_integers_behind_a_dequantize(lenet_graph, lenet_profile):
    model = to_onnx(quantize(lenet_graph, lenet_profile, Recipe(per_channel=True)))
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert (kinds["conv1.weight"], kinds["conv1.bias"]) == (TensorProto.INT8, TensorProto.INT32)
    (user,) = [node for node in model.graph.node if "conv1.weight" in node.input]
    assert user.op_type == "DequantizeLinear"
    assert not any(data == TensorProto.FLOAT and not name.endswith(".scale") for name, data in kinds.items())


def test_layers_keep_their_names(lenet_graph, lenet_profile):
    quantized = quantize(lenet_graph, lenet_profile)
    exported = {node.name: node.op_type for node in to_onnx(quantized).graph.node}
    kinds = {"QuantizedConv": "Conv", "QuantizedFullyConnected": "Gemm", "Quantize": "QuantizeLinear"}
    for node in quantized.nodes.values():
        kind = "DequantizeLinear" if node.operator.name == "Dequantize" else node.operator.name
        assert exported[node.name] == kinds.get(kind, kind)


def test_lookup_tables_are_exported_as_functions(branches_graph, branches_profile):
    model = to_onnx(quantize(branches_graph, branches_profile))
    assert {"Tanh", "Sigmoid", "LeakyRelu", "Clip", "Relu"} <= {node.op_type for node in model.graph.node}


def test_padding_of_integers_is_exported_in_float():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (1, 1, 2, 2)))
    (y,) = graph.add(Relu(), x).outputs
    pad = Pad((0, 0, 1, 1, 0, 0, 0, 0), value=-3.0)
    graph.output(graph.add(pad, y).outputs[0], "y")
    inputs = {"x": np.float32([[[[1, 2], [-1, 5]]]])}
    quantized = quantize(graph, profile(graph, [inputs]))
    (got, expected) = (run_onnxruntime(to_onnx(quantized), **inputs)["y"], Interpreter(quantized).run(inputs)["y"])
    np.testing.assert_allclose(
        got, expected, atol=1.01 * quantized.outputs["y"].producer.inputs[0].type.quantization.scale[0]
    )
    assert got.min() == pytest.approx(-3, abs=0.02)


def test_sixteen_bits_need_a_new_opset(lenet_graph, lenet_profile):
    quantized = quantize(lenet_graph, lenet_profile, Recipe(element="int16"))
    with pytest.raises(CompilerError, match="need opset 21"):
        to_onnx(quantized, opset=20)
