"""Operators on integers behind a QuantizeLinear: to ONNX they are plain integers, whatever reals they represent."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mlhood
from mlhood.compiler.onnx.exporter import to_onnx
from tests.compiler.operators.agreement import session_of

Node = helper.make_node
PER_TENSOR = {"s": np.float32(0.5), "z": np.int8(0)}
PER_AXIS = {"s": np.float32([0.5, 1, 2]), "z": np.int8([0, 1, -1])}
CONSTANTS = {
    "twice": np.array([1, 2]),
    "shape": np.array([3, -1]),
    "axis": np.array([0]),
    "low": np.int8(-2),
    "high": np.int8(3),
}
X = np.array([[-4.0, 0.5, 1.5], [9.0, -1.0, 2.5]], np.float32)

NODES = {
    "Relu": [Node("Relu", ["q"], ["y"])],
    "Clip": [Node("Clip", ["q", "low", "high"], ["y"])],
    "Max": [Node("Max", ["q", "low"], ["y"])],
    "Min of two": [Node("QuantizeLinear", ["x", "s2", "z2"], ["p"]), Node("Min", ["q", "p"], ["y"])],
    "Where": [Node("Greater", ["x", "s2"], ["c"]), Node("Where", ["c", "q", "low"], ["y"])],
    "ReduceMax": [Node("ReduceMax", ["q", "axis"], ["y"])],
    "Relu, dequantised": [Node("Relu", ["q"], ["r"]), Node("DequantizeLinear", ["r", "s2", "z2"], ["y"])],
    "Tile": [Node("Tile", ["q", "twice"], ["y"])],
    "Reshape": [Node("Reshape", ["q", "shape"], ["y"])],
    "Unsqueeze and Squeeze": [Node("Unsqueeze", ["q", "axis"], ["u"]), Node("Squeeze", ["u", "axis"], ["y"])],
    "Transpose": [Node("Transpose", ["q"], ["y"], perm=[1, 0])],
    "Concat": [Node("Concat", ["q", "q"], ["y"], axis=0)],
}


def quantised(nodes, parameters):
    constants = {**CONSTANTS, **parameters, "s2": np.float32(0.25), "z2": np.int8(3)}
    element = TensorProto.FLOAT if nodes[-1].op_type == "DequantizeLinear" else TensorProto.INT8
    graph = helper.make_graph(
        [Node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1), *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", element, [None, None])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
@pytest.mark.parametrize("parameters", [PER_TENSOR, PER_AXIS], ids=["per tensor", "per axis"])
@pytest.mark.parametrize("name", NODES)
def test_the_stored_integers_are_computed_with(name, parameters, target):
    model = quantised(NODES[name], parameters)
    y = mlhood.compile(model, target=target).run(x=X)["y"]
    expected = session_of(model).run(None, {"x": X})[0]
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("name", ["Relu", "Clip", "Relu, dequantised"])
def test_round_trip(name):
    model = quantised(NODES[name], PER_TENSOR)
    exported = to_onnx(mlhood.compile(model, stop_after="optimized"))
    np.testing.assert_array_equal(session_of(exported).run(None, {"x": X})[0], session_of(model).run(None, {"x": X})[0])
