"""Operators whose lengths depend on data, and what follows them, on every target."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree


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
