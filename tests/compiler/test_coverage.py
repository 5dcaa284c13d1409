"""Networks as several exporters write them, in several opsets, against ONNX Runtime; the zoo has more of torch's."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, version_converter

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.exchange import run as run_onnxruntime
from mlhood.exchange import silence
from mlhood.models import LeNet
from tests.tools.compiler.architectures import architecture

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node

# architectures of the zoo in the opsets that it leaves out: there, TorchScript writes other operators
OLDER = [("mobilenet_v2", opset) for opset in (7, 9, 10)] + [("unet", opset) for opset in (9, 10)]


def assert_matches_onnxruntime(model, *arrays, tolerance=1e-4):
    """Compare the graph and the optimised graph with ONNX Runtime; the tolerance is relative to the largest output."""
    graph = import_model(model)
    verify(graph)
    optimized = optimize(graph, check=True)
    expected = run_onnxruntime(model, *arrays, threads=1)
    for g in (graph, optimized):
        actual = Interpreter(g).run(dict(zip(g.placeholders, arrays, strict=True)))
        assert actual.keys() == expected.keys()
        for name, reference in expected.items():
            assert actual[name].dtype == reference.dtype
            limit = tolerance * max(np.abs(reference).max(initial=0), 1e-3)
            np.testing.assert_allclose(actual[name], reference, rtol=0, atol=limit)
    return graph, optimized


@cache
def random_lenet(opset):
    """LeNet as TorchScript exports it, and its results for the images of `random`."""
    torch.manual_seed(0)
    model, x = LeNet().eval(), random(2, 1, 32, 32)
    with torch.no_grad():
        return export_with_torchscript(model, x, opset), model(torch.tensor(x)).numpy()


def export_with_torchscript(model, x, opset):
    file = io.BytesIO()
    with silence():
        torch.onnx.export(
            model,
            (torch.tensor(x),),
            file,
            dynamo=False,
            opset_version=opset,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )
    return onnx.load_from_string(file.getvalue())


@pytest.mark.parametrize(("name", "opset"), OLDER)
def test_an_architecture_in_older_opsets(name, opset):
    entry = architecture(name)
    (x,) = (sample.numpy() for sample in entry.samples(2))
    assert_matches_onnxruntime(export_with_torchscript(entry.model(), x, opset), x)


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_lenet_converted_to_each_opset(opset):
    x = random(2, 1, 32, 32)
    exported, expected = random_lenet(7 if opset < 9 else 9)  # ONNX Runtime does not have the newest opsets yet
    graph = import_model(version_converter.convert_version(exported, opset))
    verify(graph)
    for g in (graph, optimize(graph, check=True)):
        np.testing.assert_allclose(Interpreter(g).run({"image": x})["logits"], expected, rtol=1e-4, atol=1e-5)


# -- in the style of other exporters


def make_model(nodes, inputs, weights=None, *, opset=13, outputs=("y",), element=FLOAT):
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    inputs_info = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    outputs_info = [helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [helper.make_opsetid("", opset)]
    draft = helper.make_model(helper.make_graph(nodes, "g", inputs_info, outputs_info, tensors), opset_imports=opsets)
    outputs_info = onnx.shape_inference.infer_shapes(draft, data_prop=True).graph.output
    for value in outputs_info:
        value.type.tensor_type.elem_type = element
        if not value.type.tensor_type.HasField("shape"):  # not inferred, but a valid model needs a shape
            value.CopyFrom(helper.make_tensor_value_info(value.name, element, ["a", "b"]))
    graph = helper.make_graph(nodes, "g", inputs_info, outputs_info, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_tensorflow_convolution_with_channels_last():
    """Pad, Conv between Transposes, BatchNorm as Mul and Add, Relu6 as Min and Max, ReduceMean as pool, MatMul, Add."""
    weights = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "w": random(8, 3, 3, 3),
        "scale": random(1, 1, 1, 8, seed=1),
        "shift": random(1, 1, 1, 8, seed=2),
        "six": np.float32(6),
        "zero": np.float32(0),
        "fc": random(8, 5, seed=3),
        "bias": random(5, seed=4),
    }
    nodes = [
        node("Transpose", ["x"], ["t0"], perm=[0, 3, 1, 2]),
        node("Pad", ["t0", "pads"], ["p"]),
        node("Conv", ["p", "w"], ["c"], strides=[2, 2]),
        node("Transpose", ["c"], ["t1"], perm=[0, 2, 3, 1]),
        node("Mul", ["t1", "scale"], ["m"]),
        node("Add", ["m", "shift"], ["a"]),
        node("Min", ["a", "six"], ["n"]),
        node("Max", ["n", "zero"], ["r"]),
        node("ReduceMean", ["r"], ["g"], axes=[1, 2], keepdims=0),
        node("MatMul", ["g", "fc"], ["f"]),
        node("Add", ["f", "bias"], ["y"]),
    ]
    graph, optimized = assert_matches_onnxruntime(
        make_model(nodes, {"x": (FLOAT, ["n", 9, 9, 3])}, weights), random(2, 9, 9, 3, seed=5)
    )
    assert len(optimized.nodes) < len(graph.nodes)


def test_keras_block_with_redundant_operators():
    """Constant nodes, chained Identity, Cast forth and back, Dropout with a ratio, Squeeze with axes as an input."""
    nodes = [
        node("Constant", [], ["w"], value=numpy_helper.from_array(random(4, 3, 1, 1))),
        node("Constant", [], ["axes"], value_ints=[2, 3]),
        node("Identity", ["x"], ["i0"]),
        node("Identity", ["i0"], ["i1"]),
        node("Conv", ["i1", "w"], ["c"]),
        node("Cast", ["c"], ["c64"], to=TensorProto.DOUBLE),
        node("Cast", ["c64"], ["c32"], to=FLOAT),
        node("Dropout", ["c32", "ratio"], ["d"]),
        node("GlobalAveragePool", ["d"], ["g"]),
        node("Squeeze", ["g", "axes"], ["s"]),
        node("Unsqueeze", ["s", "axes"], ["u"]),
        node("Flatten", ["u"], ["y"]),
    ]
    assert_matches_onnxruntime(
        make_model(nodes, {"x": (FLOAT, ["n", 3, 4, 4])}, {"ratio": np.float32(0.5)}), random(3, 3, 4, 4)
    )


@pytest.mark.parametrize("target", [[-1], [48]])
def test_flatten_as_shape_gather_concat_reshape(target):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "zero", "one"], ["batch"]),
        node("Concat", ["batch", "features"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "one": np.array([1]), "features": np.array(target)}
    graph, optimized = assert_matches_onnxruntime(
        make_model(nodes, {"x": (FLOAT, ["n", 3, 4, 4])}, weights), random(2, 3, 4, 4)
    )
    assert graph.value("y").type.shape == ("n", 48)
    assert [n.operator.name for n in optimized.nodes.values()] == ["Reshape"]


def test_paddles_hard_swish_and_scale():
    """HardSigmoid with a custom slope, Mul, and a bias that is unsqueezed at run time."""
    weights = {"b": random(3), "axes": np.array([0, 2, 3]), "w": random(3, 1, 3, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["c"], group=3, pads=[1, 1, 1, 1], kernel_shape=[3, 3], dilations=[1, 1]),
        node("Unsqueeze", ["b", "axes"], ["bias"]),
        node("Add", ["c", "bias"], ["a"]),
        node("HardSigmoid", ["a"], ["h"], alpha=1 / 6, beta=0.5),
        node("Mul", ["a", "h"], ["m"]),
        node("AveragePool", ["m"], ["p"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=0, pads=[1, 1, 1, 1]),
        node("Softmax", ["p"], ["y"], axis=1),
    ]
    assert_matches_onnxruntime(make_model(nodes, {"x": (FLOAT, ["n", 3, 8, 8])}, weights), random(2, 3, 8, 8))


@pytest.mark.parametrize("opset", [7, 9])
def test_convolution_and_batch_norm_of_old_opsets(opset):
    weights = {
        "w": random(4, 3, 3, 3),
        "s": random(4),
        "b": random(4, seed=1),
        "m": random(4, seed=2),
        "v": np.ones(4, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], auto_pad="SAME_LOWER", strides=[2, 2]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
        node("Clip", ["n"], ["k"], min=0.0, max=6.0),
        node("Pad", ["k"], ["p"], pads=[0, 0, 1, 0, 0, 0, 0, 1], value=0.5),
        node("MaxPool", ["p"], ["y"], kernel_shape=[2, 2]),
    ]
    assert_matches_onnxruntime(
        make_model(nodes, {"x": (FLOAT, ["n", 3, 7, 7])}, weights, opset=opset), random(2, 3, 7, 7)
    )


def test_weights_that_are_inputs(lenet):
    """A model without initializers takes its weights as inputs, as in federated learning."""
    x = random(2, 1, 32, 32)
    model = export_with_torchscript(lenet, x, 13)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    expected = run_onnxruntime(model, x, threads=1)["logits"]
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del model.graph.initializer[:]
    graph = import_model(model)
    verify(graph)
    assert len(graph.placeholders) == 1 + len(weights)
    for g in (graph, optimize(graph, check=True)):
        got = Interpreter(g).run({"image": x, **weights})["logits"]
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


# -- operators of these models, with attributes that no family has


def test_resize_keeps_a_dynamic_batch():
    weights = {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    proto = node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    graph, _ = assert_matches_onnxruntime(
        make_model([proto], {"x": (FLOAT, ["n", 3, "h", 4])}, weights), random(2, 3, 5, 4)
    )
    assert graph.value("y").type.shape == ("n", 3, "2*h", 6)


@pytest.mark.parametrize(("size", "scale"), [(10, 0.7), (5, 0.6), (3, 1 / 3), (7, 2.5), (1, 0.5)])
def test_a_size_is_rounded_as_in_onnx_runtime(size, scale):
    weights = {"scales": np.array([1, scale], np.float32)}
    proto = node(
        "Resize", ["x", "", "scales"], ["y"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    model = make_model([proto], {"x": (FLOAT, [2, size])}, weights)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "length"  # ONNX infers another size
    assert_matches_onnxruntime(model, random(2, size))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 3], "output_padding": [1, 2]},
        {"pads": [1, 0, 1, 2], "dilations": [2, 1]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 2], "output_shape": [9, 11]},
    ],
)
@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolution(attributes, group):
    weights = {"w": random(4, 3, 3, 3), "b": random(3 * group, seed=1)}
    proto = node("ConvTranspose", ["x", "w", "b"], ["y"], group=group, **attributes)
    assert_matches_onnxruntime(make_model([proto], {"x": (FLOAT, [2, 4, 5, 5])}, weights), random(2, 4, 5, 5, seed=2))
