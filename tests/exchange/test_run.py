"""Running: inputs by position or by name, and clear errors for invalid ones."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from mlhood.errors import ExchangeError
from mlhood.exchange import run

X = np.zeros((2, 1, 32, 32), np.float32)


@pytest.mark.parametrize("shape", [None, [-1, 2], [None, 2], ["n", 2]])
def test_an_axis_or_a_shape_may_be_undeclared(shape):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    np.testing.assert_array_equal(run(model, np.float32([[-1, 2]]))["y"], [[0, 2]])


def test_inputs_by_position_by_name_and_from_torch(lenet_onnx):
    expected = run(lenet_onnx, X)["logits"]
    assert expected.shape == (2, 10)
    for again in (run(lenet_onnx, image=X), run(lenet_onnx, torch.tensor(X), threads=1)):
        np.testing.assert_allclose(again["logits"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "inputs", "part", "message"),
    [
        ((), {}, "expected", "image"),
        ((), {"picture": X}, "got", "picture"),
        ((X, X), {}, "got", "2 by position"),
        ((X,), {"image": X}, "got", "1 by position, image"),
        ((X.astype(np.float64),), {}, "what to do", ".astype('float32')"),
        ((X.astype(np.uint8),), {}, "got", "uint8"),
        ((X[0],), {}, "got", "[1, 32, 32]"),
        ((X[:, :, 1:],), {}, "expected", "['batch', 1, 32, 32]"),
        ((X.tolist(),), {}, "got", "float64"),
        (("text",), {}, "expected", "float32"),
    ],
)
def test_invalid_inputs_raise(lenet_onnx, arrays, inputs, part, message):
    with pytest.raises(ExchangeError) as caught:
        run(lenet_onnx, *arrays, **inputs)
    assert message in caught.value.parts[part]


def test_a_failure_at_run_time_raises(tf_lenet, capfd):
    broken = type(tf_lenet)()
    broken.CopyFrom(tf_lenet)
    shape = next(tensor for tensor in broken.graph.initializer if tensor.name == "shape")
    shape.raw_data = np.array([7, -1], np.int64).tobytes()
    del broken.graph.output[0].type.tensor_type.shape.dim[:]
    broken.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ExchangeError, match=r"ONNX Runtime|graph is invalid"):
        run(broken, np.zeros((2, 32, 32, 1), np.float32))
    assert capfd.readouterr().err == ""
