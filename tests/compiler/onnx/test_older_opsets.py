"""Networks and operators in the opsets that the zoo leaves out, against ONNX Runtime."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, version_converter

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


@pytest.mark.parametrize("opset", [7, 8, 10, 11, 13, 18, 21, onnx.defs.onnx_opset_version()])
def test_lenet_converted_to_an_opset(opset):
    x = random(2, 1, 32, 32)
    exported, expected = random_lenet(7 if opset < 9 else 9)  # ONNX Runtime does not have the newest opsets yet
    graph = import_model(version_converter.convert_version(exported, opset))
    verify(graph)
    for g in (graph, optimize(graph, check=True)):
        np.testing.assert_allclose(Interpreter(g).run({"image": x})["logits"], expected, rtol=1e-4, atol=1e-5)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("opset", [7, 9])
def test_convolution_and_batch_norm_of_old_opsets(new_model, opset):
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
        new_model(nodes, {"x": (FLOAT, ["n", 3, 7, 7])}, weights, opset=opset, rank=4), random(2, 3, 7, 7)
    )


@pytest.mark.parametrize(("size", "scale"), [(10, 0.7), (5, 0.6), (3, 1 / 3), (7, 2.5), (1, 0.5)])
def test_a_size_is_rounded_as_in_onnx_runtime(new_model, size, scale):
    weights = {"scales": np.array([1, scale], np.float32)}
    proto = node(
        "Resize", ["x", "", "scales"], ["y"], coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    model = new_model([proto], {"x": (FLOAT, [2, size])}, weights, opset=13, rank=2)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "length"  # ONNX infers another size
    assert_matches_onnxruntime(model, random(2, size))
