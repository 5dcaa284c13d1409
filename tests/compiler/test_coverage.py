"""Families of networks as several tools write them, in several opsets: what they mean is what ONNX Runtime says."""

from __future__ import annotations

import io

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper, version_converter

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.exchange import export, silence
from mlhood.exchange import run as run_onnxruntime
from mlhood.models.resnet import Bottleneck, ResNet
from tests.compiler.families import DenseNet, Inception, MobileNetV2, SqueezeExcite, SqueezeNet, UNet, Vgg

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node

# a family, narrow, and the height and width of its pictures
FAMILIES = {
    "MobileNetV2": (lambda: MobileNetV2(0.25, 10), 64),
    "SqueezeNet 1.1": (lambda: SqueezeNet(0.25, 10), 64),
    "VGG-11": (lambda: Vgg(11, False, 0.0625, 10), 224),
    "VGG-16 with BN": (lambda: Vgg(16, True, 0.0625, 10), 224),
    "ResNet of bottlenecks": (lambda: ResNet(Bottleneck, [1, 1, 1, 1], classes=10), 64),
    "DenseNet": (DenseNet, 64),
    "Inception": (Inception, 40),
    "squeeze and excite": (SqueezeExcite, 32),
    "U-Net": (UNet, 16),
    "U-Net, nearest": (lambda: UNet("nearest"), 16),
    "U-Net, corners": (lambda: UNet("bilinear", align_corners=True), 16),
}
OLDER = [(name, 13) for name in FAMILIES]
OLDER += [("MobileNetV2", opset) for opset in (7, 9, 10, 11, 17, 20)]
OLDER += [("U-Net", opset) for opset in (9, 10, 11, 17)]


def network(name):
    torch.manual_seed(0)
    build, size = FAMILIES[name]
    model = build()
    with torch.no_grad(), torch.random.fork_rng():
        for module in model.modules():  # statistics that are not the neutral ones
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
    return model.eval(), np.random.default_rng(0).standard_normal((2, 3, size, size), np.float32)


def agrees(model, *arrays, tolerance=1e-4):
    """Compare the graph, and what the passes make of it, with ONNX Runtime; relative to the largest output."""
    graph = import_model(model)
    verify(graph)
    optimized = optimize(graph, check=True)
    wanted = run_onnxruntime(model, *arrays, threads=1)
    for one in (graph, optimized):
        got = Interpreter(one).run(dict(zip(one.placeholders, arrays, strict=True)))
        assert got.keys() == wanted.keys()
        for name, reference in wanted.items():
            assert got[name].dtype == reference.dtype
            limit = tolerance * max(np.abs(reference).max(initial=0), 1e-3)
            np.testing.assert_allclose(got[name], reference, rtol=0, atol=limit)
    return graph, optimized


def exported_by_older(model, x, opset):
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


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_by_torchs_exporter(name, tmp_path):
    model, x = network(name)
    graph, optimized = agrees(onnx.load(export(model, x, tmp_path / "model.onnx")), x)
    assert len(optimized.nodes) <= len(graph.nodes)
    (output,) = optimized.outputs.values()
    assert output.type.shape[0] == "batch"


@pytest.mark.parametrize(("name", "opset"), OLDER)
def test_a_family_by_torchs_older_exporter(name, opset):
    model, x = network(name)
    agrees(exported_by_older(model, x, opset), x)


def test_mobilenet_at_full_size():
    torch.manual_seed(0)
    x = draw(1, 3, 224, 224)
    graph, optimized = agrees(exported_by_older(MobileNetV2().eval(), x, 17), x)
    assert len(optimized.nodes) < len(graph.nodes)


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_lenet_converted_to_each_opset(lenet, opset):
    x = draw(2, 1, 32, 32)
    model = version_converter.convert_version(exported_by_older(lenet, x, 7 if opset < 9 else 9), opset)
    with torch.no_grad():
        wanted = lenet(torch.tensor(x)).numpy()  # ONNX Runtime does not have the newest opsets yet
    graph = import_model(model)
    verify(graph)
    for one in (graph, optimize(graph, check=True)):
        np.testing.assert_allclose(Interpreter(one).run({"image": x})["logits"], wanted, rtol=1e-4, atol=1e-5)


# -- as other tools write


def model_of(nodes, inputs, weights=None, *, opset=13, outputs=("y",), element=FLOAT):
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    declared = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [helper.make_opsetid("", opset)]
    draft = helper.make_model(helper.make_graph(nodes, "g", declared, made, tensors), opset_imports=opsets)
    made = onnx.shape_inference.infer_shapes(draft, data_prop=True).graph.output
    for value in made:
        value.type.tensor_type.elem_type = element
        if not value.type.tensor_type.HasField("shape"):  # ONNX does not follow it, and then wants some shape
            value.CopyFrom(helper.make_tensor_value_info(value.name, element, ["a", "b"]))
    graph = helper.make_graph(nodes, "g", declared, made, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_tensorflows_convolution_in_channels_last():
    """Pad, Conv between Transposes, BatchNorm as Mul and Add, Relu6 as Min and Max, ReduceMean as pool, MatMul, Add."""
    weights = {
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "w": draw(8, 3, 3, 3),
        "scale": draw(1, 1, 1, 8, seed=1),
        "shift": draw(1, 1, 1, 8, seed=2),
        "six": np.float32(6),
        "zero": np.float32(0),
        "fc": draw(8, 5, seed=3),
        "bias": draw(5, seed=4),
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
    graph, optimized = agrees(model_of(nodes, {"x": (FLOAT, ["n", 9, 9, 3])}, weights), draw(2, 9, 9, 3, seed=5))
    assert len(optimized.nodes) < len(graph.nodes)


def test_keras_block_with_everything_around_it():
    """Constant nodes, a chain of Identity, Cast there and back, Dropout with a ratio, Squeeze with axes as an input."""
    nodes = [
        node("Constant", [], ["w"], value=numpy_helper.from_array(draw(4, 3, 1, 1))),
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
    agrees(model_of(nodes, {"x": (FLOAT, ["n", 3, 4, 4])}, {"ratio": np.float32(0.5)}), draw(3, 3, 4, 4))


@pytest.mark.parametrize("target", [[-1], [48]])
def test_flatten_as_shape_gather_concat_reshape(target):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "zero", "one"], ["batch"]),
        node("Concat", ["batch", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "one": np.array([1]), "rest": np.array(target)}
    graph, optimized = agrees(model_of(nodes, {"x": (FLOAT, ["n", 3, 4, 4])}, weights), draw(2, 3, 4, 4))
    assert graph.value("y").type.shape == ("n", 48)
    assert [one.operator.name for one in optimized.nodes.values()] == ["Reshape"]


def test_paddles_hard_swish_and_scale():
    """HardSigmoid with its own slope, Mul, and a bias that is unsqueezed when running."""
    weights = {"b": draw(3), "axes": np.array([0, 2, 3]), "w": draw(3, 1, 3, 3)}
    nodes = [
        node("Conv", ["x", "w"], ["c"], group=3, pads=[1, 1, 1, 1], kernel_shape=[3, 3], dilations=[1, 1]),
        node("Unsqueeze", ["b", "axes"], ["bias"]),
        node("Add", ["c", "bias"], ["a"]),
        node("HardSigmoid", ["a"], ["h"], alpha=1 / 6, beta=0.5),
        node("Mul", ["a", "h"], ["m"]),
        node("AveragePool", ["m"], ["p"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=0, pads=[1, 1, 1, 1]),
        node("Softmax", ["p"], ["y"], axis=1),
    ]
    agrees(model_of(nodes, {"x": (FLOAT, ["n", 3, 8, 8])}, weights), draw(2, 3, 8, 8))


@pytest.mark.parametrize("opset", [7, 9])
def test_convolution_and_batch_norm_of_old_opsets(opset):
    weights = {
        "w": draw(4, 3, 3, 3),
        "s": draw(4),
        "b": draw(4, seed=1),
        "m": draw(4, seed=2),
        "v": np.ones(4, np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["c"], auto_pad="SAME_LOWER", strides=[2, 2]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], epsilon=1e-3),
        node("Clip", ["n"], ["k"], min=0.0, max=6.0),
        node("Pad", ["k"], ["p"], pads=[0, 0, 1, 0, 0, 0, 0, 1], value=0.5),
        node("MaxPool", ["p"], ["y"], kernel_shape=[2, 2]),
    ]
    agrees(model_of(nodes, {"x": (FLOAT, ["n", 3, 7, 7])}, weights, opset=opset), draw(2, 3, 7, 7))


def test_weights_that_are_inputs(lenet):
    """A model without initialisers runs with its weights fed, as onnx's `prepare` and federated learning use them."""
    x = draw(2, 1, 32, 32)
    model = exported_by_older(lenet, x, 13)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    wanted = run_onnxruntime(model, x, threads=1)["logits"]
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del model.graph.initializer[:]
    graph = import_model(model)
    verify(graph)
    assert len(graph.placeholders) == 1 + len(weights)
    for one in (graph, optimize(graph, check=True)):
        got = Interpreter(one).run({"image": x, **weights})["logits"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


# -- operators that only these need, on what no family has


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]
)
@pytest.mark.parametrize("sizes", [(9, 7), (3, 2), (5, 1)])
def test_resize_to_sizes(mode, coordinates, sizes):
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "round_prefer_floor"}
    weights = {"sizes": np.array([2, 3, *sizes])}  # none that puts a place between two elements just in the middle
    proto = node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)
    agrees(model_of([proto], {"x": (FLOAT, [2, 3, 5, 3])}, weights, opset=19), draw(2, 3, 5, 3))


def test_resize_keeps_an_open_batch():
    weights = {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    proto = node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    graph, _ = agrees(model_of([proto], {"x": (FLOAT, ["n", 3, "h", 4])}, weights), draw(2, 3, 5, 4))
    assert graph.value("y").type.shape == ("n", 3, "2*h", 6)


@pytest.mark.parametrize(("size", "scale"), [(10, 0.7), (5, 0.6), (3, 1 / 3), (7, 2.5), (1, 0.5)])
def test_a_length_is_rounded_as_onnx_runtime_does(size, scale):
    weights = {"scales": np.array([1, scale], np.float32)}
    proto = node(
        "Resize", ["x", "", "scales"], ["y"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    model = model_of([proto], {"x": (FLOAT, [2, size])}, weights)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "length"  # ONNX's own rule says another
    agrees(model, draw(2, size))


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
    weights = {"w": draw(4, 3, 3, 3), "b": draw(3 * group, seed=1)}
    proto = node("ConvTranspose", ["x", "w", "b"], ["y"], group=group, **attributes)
    agrees(model_of([proto], {"x": (FLOAT, [2, 4, 5, 5])}, weights), draw(2, 4, 5, 5, seed=2))
