"""Reports of the loss due to quantisation."""

import math

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.operators.rescale import parameters_of
from mlhood.compiler.quantize import Recipe, layer_sqnr, output_sqnr, quantize, sqnr, summary
from mlhood.compiler.quantize.schema import dequantize_array, quantize_array
from mlhood.errors import CompilerError


def test_sqnr():
    x = np.array([3.0, -4.0])
    assert sqnr(x, x) == math.inf
    assert sqnr(x, x + np.array([0.3, -0.4])) == pytest.approx(20)
    assert sqnr(np.zeros(2), x) == -math.inf
    with pytest.raises(CompilerError, match="differ in shape"):
        sqnr(x, x[None])


def test_summary(lenet_graph, lenet_profile, data):
    images, labels = {"image": data.test_images[:50]}, data.test_labels[:50]
    quantized = quantize(lenet_graph, lenet_profile)
    report = summary(lenet_graph, quantized, images, labels)
    expected, got = (Interpreter(graph).run(images)["logits"] for graph in (lenet_graph, quantized))
    assert report == {
        "accuracy": (got.argmax(1) == labels).mean(),
        "agreement": (got.argmax(1) == expected.argmax(1)).mean(),
        "sqnr": pytest.approx(sqnr(expected, got)),
        "bytes": 61_470 + 4 * 236,  # one byte per weight, four per bias
        "nodes": 10,
        "kept_in_float": [],
    }
    assert math.isnan(summary(lenet_graph, quantized, images)["accuracy"])


def test_layers(lenet_graph, lenet_profile, data):
    images = {"image": data.test_images[:50]}
    quantized = quantize(lenet_graph, lenet_profile)
    table = layer_sqnr(lenet_graph, quantized, images)
    values = [node.outputs[0].name for node in lenet_graph.topological()]
    assert list(table.index) == ["image", *values]
    assert list(table["node"])[1:] == [node.name for node in lenet_graph.topological()]
    logits = (Interpreter(graph).run(images)["logits"] for graph in (lenet_graph, quantized))
    assert table["sqnr"]["logits"] == pytest.approx(sqnr(*logits))
    # the first layer has the same quantised input in both cases
    assert table["alone"]["relu"] == table["sqnr"]["relu"]
    assert (table["alone"] >= table["sqnr"] - 0.2).all()


def test_a_layer_with_a_large_loss_is_identified(branches_graph, branches_profile, images):
    quantized = quantize(branches_graph, branches_profile)
    coarse = quantized.copy()
    conv = next(node for node in coarse.topological() if node.name == "first")
    (weight, bias) = (coarse.constants[value.name] for value in conv.inputs[1:3])
    rounded = coarse.constant("rounded", weight.data // 32 * 32, weight.type.quantization)
    coarse.replace_input(conv, 1, rounded)
    table = layer_sqnr(branches_graph, coarse, {"image": images})
    before = layer_sqnr(branches_graph, quantized, {"image": images})
    lost = before["alone"] - table["alone"]
    assert lost.idxmax() == conv.outputs[0].name
    assert lost.max() > 3
    assert (lost.drop(lost.idxmax()).abs() < 1e-9).all()
    assert bias.type.element == "int32"


def test_float_layers_between_integer_layers(branches_graph, branches_profile, images):
    quantized = quantize(branches_graph, branches_profile, Recipe(element="int16"))
    table = layer_sqnr(branches_graph, quantized, {"image": images})
    floats = table[table["element"] == "float32"]
    assert set(floats["operator"]) == {"Tanh", "Sigmoid"}
    assert (table["alone"] > 55).all()


def test_the_cost_of_a_layer_at_the_output(branches_graph, branches_profile, images):
    graph, inputs = branches_graph, {"image": images}
    quantized = quantize(graph, branches_profile)
    costs, table = output_sqnr(graph, quantized, inputs), layer_sqnr(graph, quantized, inputs)
    # by hand: a placeholder is rounded, the rest is float
    (placeholder,) = quantized.placeholders.values()
    (user,) = [node for node in quantized.topological() if placeholder in node.inputs]
    value = user.outputs[0]
    parameters = parameters_of(value.type)
    rounded = dequantize_array(quantize_array(images, parameters, "int8"), parameters).astype(np.float32)
    exact, after = (next(iter(Interpreter(graph).run({"image": x}).values())) for x in (images, rounded))
    assert costs["image"] == pytest.approx(sqnr(exact, after), abs=0.01)  # float32 or float64 after rounding
    # of the last layer, less is rounded than if its inputs are, too
    last = next(iter(graph.outputs.values())).name
    assert costs[last] > table["alone"][last]


def test_the_costs_of_all_layers_add_up_to_the_noise_of_the_graph(lenet_graph, lenet_profile, data):
    images = {"image": data.test_images[:50]}
    quantized = quantize(lenet_graph, lenet_profile)
    costs = output_sqnr(lenet_graph, quantized, images)
    kinds = {node.outputs[0].name: node.operator.name for node in lenet_graph.topological()}
    assert list(costs) == ["image", *(name for name, kind in kinds.items() if kind not in ("MaxPool", "Reshape"))]
    logits = (Interpreter(graph).run(images)["logits"] for graph in (lenet_graph, quantized))
    together = -10 * math.log10(sum(10 ** (-cost / 10) for cost in costs.values()))
    assert together == pytest.approx(sqnr(*logits), abs=1)  # a factor of 1.26: errors of layers are nearly independent
