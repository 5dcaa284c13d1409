"""ONNX's backend interface."""

import numpy as np
import pytest
from onnx import helper

from mlhood.compiler.onnx_backend import MlhoodBackend
from mlhood.errors import CompilerError


def test_run_node():
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=2.0)
    a, b, c = np.eye(2, dtype=np.float32), np.ones((2, 3), np.float32), np.float32(1)
    (y,) = MlhoodBackend.run_node(node, [a, b, c])
    np.testing.assert_array_equal(y, np.full((2, 3), 3))


def test_run_node_with_the_same_input_twice():
    (y,) = MlhoodBackend.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [np.ones(2, np.float32)])
    np.testing.assert_array_equal(y, [2, 2])


def test_run_node_in_an_old_opset():
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    (y,) = MlhoodBackend.run_node(node, [np.zeros((2, 2), np.float32)], opset_version=11)
    np.testing.assert_array_equal(y, np.full((2, 2), 0.25))


def test_run_model_returns_outputs_by_position_and_by_name(lenet_onnx):
    import onnx

    outputs = MlhoodBackend.run_model(onnx.load(lenet_onnx), [np.zeros((3, 1, 32, 32), np.float32)])
    assert outputs[0].shape == (3, 10)
    assert outputs.logits is outputs[0]


def test_an_input_that_determines_a_shape_may_change_between_runs(new_model):
    model = new_model([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (1, [6]), "s": (7, [2])}, rank=2)
    prepared = MlhoodBackend.prepare(model, backend="interpreter")
    x = np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (3, 2), (1, 6)):
        assert prepared.run([x, np.array(shape, np.int64)])[0].shape == shape


def test_run_node_with_a_shape_as_input():
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    (y,) = MlhoodBackend.run_node(node, [np.zeros(6, np.float32), np.array([2, -1])])
    assert y.shape == (2, 3)


def test_devices():
    assert MlhoodBackend.supports_device("CPU")
    assert not MlhoodBackend.supports_device("CUDA")


@pytest.mark.parametrize(("device", "backend"), [("CUDA", "interpreter"), ("CPU", "abacus")])
def test_unknown_devices_and_targets_raise(new_model, device, backend):
    model = new_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, [6])})
    with pytest.raises(CompilerError, match=r"unknown (device|target)"):
        MlhoodBackend.prepare(model, device, backend=backend)


def test_a_wrong_number_of_inputs_raises(new_model):
    model = new_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, [6])})
    with pytest.raises(CompilerError, match="wrong number of inputs"):
        MlhoodBackend.prepare(model).run([])
