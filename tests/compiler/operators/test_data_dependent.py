"""Operators whose lengths depend on data, and what follows them, and caches of decoders, on every target."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, single


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


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_an_open_number_of_steps_before_which_there_is_a_past():
    inputs = {"x": numbers(1, 4, 2), "w": numbers(4, 1, 4), "bias": None, "past": numbers(1, 4, 3)}
    model = single("CausalConvWithState", inputs, 2, opset=27)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "steps"
    del inputs["bias"]
    agree(model, inputs, wanted=ReferenceEvaluator(model).run(None, inputs), open_axes=False)


def test_a_past_of_another_length_is_refused():
    inputs = {"x": numbers(1, 4, 2), "w": numbers(4, 1, 4), "bias": None, "past": numbers(1, 4, 3)}
    model = single("CausalConvWithState", inputs, 2, opset=27)
    model.graph.input[2].type.tensor_type.shape.dim[2].dim_value = 5
    with pytest.raises(CompilerError, match="k - 1 steps"):
        import_model(model)


@pytest.mark.parametrize(
    ("x", "w", "activation", "reason"),
    [
        ((1, 4, 5), (4, 1, 2), "relu", "unknown activation"),
        ((1, 4, 5, 1), (4, 1, 2, 1), "none", "3 axes"),
        ((1, 4, 5), (4, 1, 0), "none", "shape of the kernels"),
    ],
)
def test_a_causal_convolution_that_is_invalid_is_refused(x, w, activation, reason):
    model = single("Identity", {"x": numbers(*x)})
    model.graph.input.append(single("Identity", {"w": numbers(*w)}).graph.input[0])
    model.opset_import[0].version = 27
    node = helper.make_node("CausalConvWithState", ["x", "w"], ["y0", "y1"], activation=activation)
    model.graph.node[0].CopyFrom(node)
    with pytest.raises(CompilerError, match=reason):
        import_model(model)
