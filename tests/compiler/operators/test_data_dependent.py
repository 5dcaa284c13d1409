"""Operators whose lengths depend on data, and what follows them, against ONNX Runtime, on every target."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, agree_single


def numbers(*shape):
    return np.random.default_rng(0).integers(-1, 2, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 2), (0, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_non_zero(shape, dtype):
    agree_single("NonZero", {"x": numbers(*shape).astype(dtype)}, opset=13)


def test_non_zero_of_a_constant_has_a_known_length():
    agree_single("NonZero", {"x": numbers(3, 4)}, opset=13, constants=("x",))


@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": -1}])
@pytest.mark.parametrize("constants", [(), ("c",)])
def test_compress(attributes, constants):
    inputs = {"x": numbers(3, 4), "c": np.array([False, True, True])}
    agree_single("Compress", inputs, opset=11, attributes=attributes, constants=constants)


@pytest.mark.parametrize("attributes", [{}, {"sorted": 0}, {"axis": 0}, {"axis": -1, "sorted": 0}])
def test_unique(attributes):
    agree_single("Unique", {"x": numbers(6, 2)}, 4, opset=11, attributes=attributes)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("most", [0, 2, 9])
def test_non_max_suppression(center, most):
    rng = np.random.default_rng(2)
    boxes = rng.random((2, 12, 4)).astype(np.float32)
    inputs = {"b": boxes, "s": rng.random((2, 3, 12)).astype(np.float32), "most": np.array([most])}
    inputs |= {"overlap": np.float32([0.3]), "least": np.float32([0.2])}
    agree_single("NonMaxSuppression", inputs, opset=11, attributes={"center_point_box": center})
    agree_single("NonMaxSuppression", inputs, opset=11, constants=("most", "overlap", "least"))


def network():
    """Return a model: a convolution, then which of its elements are positive, and they themselves."""
    weight = np.random.default_rng(1).standard_normal((2, 1, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("NonZero", ["r"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"]),
        helper.make_node("GatherND", ["r", "rows"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"]),
        helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 2, 4, 4]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 6, 6])
    initial = helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.ravel())
    graph = helper.make_graph(nodes, "network", [x], outputs, [initial])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_network_goes_on_with_a_length_that_data_decide():
    agree(network(), {"x": np.random.default_rng(0).standard_normal((1, 1, 6, 6)).astype(np.float32)})


def test_the_cpu_computes_what_comes_before():
    runner, names = TARGETS["cpu"](import_model(network())), []
    x = np.random.default_rng(0).standard_normal((1, 1, 6, 6)).astype(np.float32)
    runner.run({"x": x}, lambda value, array: names.append(value.name))
    assert names.index("r") < names.index("places") < names.index("total")
    with pytest.raises(CompilerError, match="wrong shape"):
        runner.run({"x": x[:, :, 1:]})
