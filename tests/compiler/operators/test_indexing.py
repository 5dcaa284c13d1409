"""Reads and writes at indices, blocks, cumulative sums against ONNX Runtime, on every target."""

import numpy as np
import pytest
import torch

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree_single, single


def numbers(*shape, dtype=np.float32):
    return (10 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


def indices(low, high, *shape, dtype=np.int64):
    return np.random.default_rng(1).integers(low, high, shape, dtype)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_gather_elements(axis, dtype):
    x = numbers(3, 4, 5)
    shape = [2, 3, 4]
    shape[axis] = 7  # may be longer than the input along the axis only
    inputs = {"x": x, "i": indices(-x.shape[axis], x.shape[axis], *shape, dtype=dtype)}
    agree_single("GatherElements", inputs, opset=13, attributes={"axis": axis})


def test_gather_no_elements():
    agree_single("GatherElements", {"x": numbers(3, 4), "i": indices(0, 3, 0, 4)}, opset=13)


@pytest.mark.parametrize(
    ("x", "i", "attributes"),
    [
        ((3, 4, 5), (2, 3), {}),
        ((3, 4, 5), (2, 6, 2), {}),
        ((3, 4, 5), (3, 6, 1), {"batch_dims": 1}),
        ((3, 3, 5), (3, 3, 2, 1), {"batch_dims": 2}),
        ((3, 4), (0, 2), {}),
    ],
)
def test_gather_nd(x, i, attributes):
    inputs = {"x": numbers(*x), "i": indices(-3, 3, *i)}
    agree_single("GatherND", inputs, opset=13, attributes=attributes, open_axes=False)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(axis, dtype, reduction):
    i = np.array([[1, 0, 2, 0], [0, 2, -1, -4]])
    i = i if reduction != "none" else np.array([[1, 0, 2, 0], [0, 2, 1, 3]]) % 4
    x = numbers(4, 4, dtype=dtype)
    inputs = {"x": x, "i": i, "u": numbers(2, 4, dtype=dtype)}
    agree_single("ScatterElements", inputs, opset=18, attributes={"axis": axis, "reduction": reduction})


def test_scatter_of_old_opsets():
    agree_single("Scatter", {"x": numbers(3, 3), "i": indices(0, 3, 1, 3), "u": numbers(1, 3)}, opset=9)
    agree_single("ScatterElements", {"x": numbers(3, 3), "i": indices(0, 3, 1, 3), "u": numbers(1, 3)}, opset=11)


@pytest.mark.parametrize("opset", [11, 16, 18])
def test_scatter_nd(opset):
    i = np.array([[0, 1], [2, -1], [1, 0]])
    agree_single("ScatterND", {"x": numbers(3, 4, 2), "i": i, "u": numbers(3, 2)}, opset=opset)
    agree_single("ScatterND", {"x": numbers(3, 4), "i": i, "u": numbers(3)}, opset=opset)
    agree_single("ScatterND", {"x": numbers(3, 4), "i": i[:, :1], "u": numbers(3, 4)}, opset=opset)
    agree_single("ScatterND", {"x": numbers(3, 4), "i": i[:0], "u": numbers(0)}, opset=opset)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_nd_with_a_reduction(reduction):
    i = np.array([[[1]], [[1]], [[-2]]])
    inputs = {"x": numbers(3, 4), "i": i, "u": numbers(3, 1, 4)}
    agree_single("ScatterND", inputs, opset=18, attributes={"reduction": reduction})


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("values", [np.array([0.5, 3], np.float32), np.array([0, 1])])
def test_one_hot(axis, values):
    inputs = {"i": np.array([[0, 4, 2], [-1, 7, -9]]), "depth": np.array(5), "values": values}
    agree_single("OneHot", inputs, opset=11, constants=("depth",), attributes={"axis": axis})


def test_one_hot_of_floats():
    inputs = {"i": np.array([0, 4, 2], np.float32), "depth": np.array([6], np.float32), "v": np.float32([2, 1])}
    agree_single("OneHot", inputs, opset=11, constants=("depth", "v"))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("shape", [(2, 12, 3, 5), (1, 9, 1, 2), (0, 4, 2, 2)])
def test_depth_to_space(mode, shape):
    block = 3 if shape[1] == 9 else 2
    agree_single("DepthToSpace", {"x": numbers(*shape)}, opset=13, attributes={"blocksize": block, "mode": mode})


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (1, 1, 2, 2)])
def test_space_to_depth(shape):
    agree_single("SpaceToDepth", {"x": numbers(*shape)}, opset=13, attributes={"blocksize": 2})


def test_space_to_depth_with_channels_first():
    x = numbers(2, 3, 4, 6)
    wanted = torch.nn.functional.pixel_unshuffle(torch.from_numpy(x), 2).numpy()
    attributes = {"blocksize": 2, "mode": "CRD"}
    agree_single("SpaceToDepth", {"x": x}, opset=28, attributes=attributes, wanted=[wanted], open_axes=False)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("GatherElements", {"x": numbers(3, 4), "i": np.array([[3]])}),
        ("ScatterElements", {"x": numbers(3, 4), "i": np.array([[-4]]), "u": numbers(1, 1)}),
        ("ScatterND", {"x": numbers(3, 4), "i": np.array([[0, 4]]), "u": numbers(1)}),
    ],
)
def test_an_index_out_of_range_is_an_error(name, inputs):
    with pytest.raises(CompilerError, match="out of range"):
        Interpreter(import_model(single(name, inputs, opset=18))).run(inputs)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("DepthToSpace", {"x": numbers(1, 6, 2, 2)}, {"blocksize": 2}),
        ("SpaceToDepth", {"x": numbers(1, 6, 3, 2)}, {"blocksize": 2}),
    ],
)
def test_blocks_that_do_not_fit_are_refused(name, inputs, attributes):
    with pytest.raises(CompilerError, match="multiple"):
        import_model(single(name, inputs, opset=13, **attributes))
