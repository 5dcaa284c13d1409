"""Single operators against ONNX Runtime, on inputs that hypothesis draws."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.importer import import_model
from tests.compiler.operators.agreement import session_of

FLOAT = TensorProto.FLOAT
few = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
small = st.integers(1, 4)


def compare(model, inputs, **tolerance):
    wanted = session_of(model).run(None, inputs)
    graph = import_model(model)
    verify(graph)
    got = Interpreter(graph).run(inputs)
    for name, reference in zip(got, wanted, strict=True):
        assert got[name].dtype == reference.dtype
        np.testing.assert_allclose(got[name], reference, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})


def numbers(data, *shape):
    seed = data.draw(st.integers(0, 2**31))
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@few
@given(data=st.data())
def test_conv(new_model, data):
    axes, group = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(axes)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(axes)]
    size = [(k - 1) * d + data.draw(small) for k, d in zip(kernel, dilations, strict=True)]
    x = numbers(data, data.draw(small), 2 * group, *size)
    weights = {"w": numbers(data, 3 * group, 2, *kernel), "b": numbers(data, 3 * group)}
    attributes = {
        "strides": [data.draw(st.integers(1, 3)) for _ in range(axes)],
        "dilations": dilations,
        "group": group,
    }
    if data.draw(st.booleans()):
        attributes["pads"] = [data.draw(st.integers(0, 2)) for _ in range(2 * axes)]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    compare(new_model([node], {"x": (FLOAT, ["n", *x.shape[1:]])}, weights), {"x": x})


@few
@given(data=st.data())
@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding(new_model, auto, data):
    kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
    x = numbers(data, 1, 1, *(k + data.draw(st.integers(0, 4)) for k in kernel))
    strides = [data.draw(st.integers(1, k)) for k in kernel]
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=kernel, strides=strides, auto_pad=auto)
    compare(new_model([node], {"x": (FLOAT, x.shape)}), {"x": x})


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_integers_divide_towards_zero(new_model, kind):
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    a, b = np.array([7, -7, 7, -7, 6], kind), np.array([2, 2, -2, -2, 3], kind)
    compare(
        new_model([helper.make_node("Div", ["a", "b"], ["y"])], {"a": (code, [5]), "b": (code, [5])}), {"a": a, "b": b}
    )


EMPTY = ["GlobalAveragePool", "ReduceMean", "ReduceSum", "Relu", "Softmax", "Conv", "MaxPool", "AveragePool", "Flatten"]


@pytest.mark.parametrize("op", EMPTY)
def test_an_empty_batch(new_model, op):
    x = np.zeros((0, 2, 3, 3), np.float32)
    weights = {"w": np.ones((4, 2, 2, 2), np.float32)} if op == "Conv" else {}
    window = {"kernel_shape": [2, 2]} if op in ("MaxPool", "AveragePool") else {}
    model = new_model([helper.make_node(op, ["x", *weights], ["y"], **window)], {"x": (FLOAT, ["n", 2, 3, 3])}, weights)
    (wanted,) = session_of(model).run(None, {"x": x})  # whose mean of nothing is 0, and NumPy's is not a number
    assert Interpreter(import_model(model)).run({"x": x})["y"].shape == wanted.shape


def test_the_indices_of_the_largest_of_an_empty_batch(new_model):
    nodes = [helper.make_node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2, 2])]
    graph = import_model(new_model(nodes, {"x": (FLOAT, ["n", 2, 3, 3])}, outputs=("y", "at")))
    made = Interpreter(graph).run({"x": np.zeros((0, 2, 3, 3), np.float32)})
    assert (made["y"].shape, made["at"].shape) == ((0, 2, 2, 2), (0, 2, 2, 2))


# -- quantised


@few
@given(data=st.data())
def test_quantised_convolution(new_model, data):
    draw = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    x = draw.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8)
    weights = {
        "xs": np.float32(0.1),
        "xo": np.uint8(data.draw(st.integers(0, 255))),
        "w": draw.integers(-64, 64, (3, 2, 3, 3)).astype(np.int8),  # 7 bits: without VNNI, ONNX Runtime saturates
        "ws": draw.uniform(0.01, 0.1, 3).astype(np.float32),
        "wo": np.zeros(3, np.int8),
        "ys": np.float32(2),
        "yo": np.uint8(data.draw(st.integers(0, 255))),
        "b": draw.integers(-500, 500, 3).astype(np.int32),
    }
    node = helper.make_node(
        "QLinearConv", ["x", "xs", "xo", "w", "ws", "wo", "ys", "yo", "b"], ["y"], pads=[1, 1, 1, 1]
    )
    model = new_model([node], {"x": (TensorProto.UINT8, x.shape)}, weights)
    # ONNX Runtime rescales in float32: a value that falls on a half may come out one higher or lower
    compare(model, {"x": x}, rtol=0, atol=1)


def test_what_integers_stand_for_is_in_the_types(new_model):
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "o"], ["q"]),
        helper.make_node("MaxPool", ["q"], ["p"], kernel_shape=[2, 2]),
        helper.make_node("DequantizeLinear", ["p", "s", "o"], ["y"]),
    ]
    weights = {"s": np.float32(0.5), "o": np.int8(3)}
    graph = import_model(new_model(nodes, {"x": (FLOAT, ["n", 1, 4, 4])}, weights))
    verify(graph)
    pooled = graph.value("p").type
    assert (pooled.element, pooled.quantization.scale, pooled.quantization.offset) == ("int8", (0.5,), (3,))
    assert [node.operator.name for node in graph.nodes.values()] == ["Quantize", "MaxPool", "Dequantize"]
