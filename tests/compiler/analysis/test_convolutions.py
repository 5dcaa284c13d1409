"""The list of a graph's convolutions, and their captured inputs, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import mlhood
from mlhood.compiler.analysis.convolutions import capture, convolutions
from mlhood.errors import CompilerError
from mlhood.kernels import CONV2D


def model(batch: int | str = 1, **second) -> bytes:
    """Two convolutions with a ReLU between them; `second` overrides attributes of the second one."""
    rng = np.random.default_rng(3)
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]} | second
    weights = {"w1": (4, 3, 3, 3), "b1": (4,), "w2": (6, 4 // attributes.get("group", 1), 3, 3)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w1", "b1"], ["a"], "first"),
            helper.make_node("Relu", ["a"], ["r"], "relu"),
            helper.make_node("Conv", ["r", "w2"], ["y"], "second", **attributes),
        ],
        "two convolutions",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [batch, 3, 11, 9])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 6, "h", "w"])],
        [numpy_helper.from_array(rng.standard_normal(shape, np.float32), name) for name, shape in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


IMAGE = np.random.default_rng(0).standard_normal((1, 3, 11, 9), np.float32)


def graph_of(data: bytes):
    return mlhood.compile(data, stop_after="hir")


def test_the_list_has_every_convolution_with_its_shapes():
    first, second = convolutions(graph_of(model()))
    assert (first.name, first.x, first.w, first.y) == ("first", (1, 3, 11, 9), (4, 3, 3, 3), (1, 4, 9, 7))
    assert (second.y, second.stride, second.padding, second.groups) == ((1, 6, 5, 4), (2, 2), (1, 1, 1, 1), 1)
    assert (str(first), str(second)) == ("3→4 3x3 @11", "4→6 3x3/2 @9")


@pytest.mark.parametrize("kernel", CONV2D)
def test_a_kernel_on_the_captured_data_matches_the_model(kernel):
    data = model()
    layer = capture(graph_of(data), ["second"], {"image": IMAGE})["second"]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"image": IMAGE})[0]
    np.testing.assert_allclose(CONV2D[kernel](*layer.arguments), expected, rtol=1e-4, atol=1e-4)
    assert layer.macs == expected.size * 4 * 9


def test_the_first_convolution_has_the_models_input_and_its_bias():
    layer = capture(graph_of(model()), ["first"], {"image": IMAGE})["first"]
    np.testing.assert_array_equal(layer.x, IMAGE)
    assert layer.bias.any()


def test_an_unknown_name_raises_with_the_known_ones():
    with pytest.raises(CompilerError, match="first, second"):
        capture(graph_of(model()), ["third"], {"image": IMAGE})


def test_a_dynamic_batch_raises():
    with pytest.raises(CompilerError, match="dynamic_batch=False"):
        convolutions(graph_of(model("batch")))


@pytest.mark.parametrize("second", [{"strides": [1, 2]}, {"pads": [0, 1, 1, 1]}, {"dilations": [2, 2]}, {"group": 2}])
def test_convolutions_that_the_kernels_do_not_support_raise(second):
    with pytest.raises(CompilerError, match="do not support"):
        capture(graph_of(model(**second)), ["second"], {"image": IMAGE})
