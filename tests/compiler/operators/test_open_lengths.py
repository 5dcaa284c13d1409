"""Operators whose lengths are those of open axes, against ONNX Runtime: on both targets, and exported again."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood import compile as compile_model
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.errors import CompilerError

ONE = numpy_helper.from_array(np.array([1], np.int64), "one")


def model_of(nodes, inputs, constants, rank):
    """Return a model whose output is y, with x's shape in "shape" and the length of its axis 0 in "n"."""
    prefix = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "one"], ["n"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
    constants = {"zero": np.array([0], np.int64), "one": np.array([1], np.int64), **constants}
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([*prefix, *nodes], "open", values, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def check(model, *batches):
    """Compare one executable of each target, and the export, with ONNX Runtime at several batch sizes."""
    executables = [compile_model(model, target) for target in ("interpreter", "cpu")]
    exported = to_onnx(compile_model(model, stop_after="optimized"))
    sessions = [onnxruntime.InferenceSession(m.SerializeToString()) for m in (model, exported)]
    for inputs in batches:
        wanted, again = (session.run(None, inputs)[0] for session in sessions)
        np.testing.assert_allclose(again, wanted, rtol=1e-5, atol=1e-6)
        for executable in executables:
            y = executable.run(**inputs)["y"]
            assert y.dtype == wanted.dtype
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def batches(*shape):
    return [{"x": np.arange(n * np.prod(shape), dtype=np.float32).reshape(n, *shape)} for n in (1, 2, 5)]


def node(*arguments, **attributes):
    return helper.make_node(*arguments, **attributes)


TWO, THREE = np.array([2], np.int64), np.array([3], np.int64)
TOKEN = np.array([[[1.0, 2.0]]], np.float32)
# Each: the nodes, the constants, the shape of x, the rank of y.
CASES = {
    "expand a token": (
        [
            node("Concat", ["n", "one", "two"], ["s"], axis=0),
            node("Expand", ["token", "s"], ["t"]),
            node("Concat", ["t", "x"], ["y"], axis=1),
        ],
        {"two": TWO, "token": TOKEN},
        ["N", 3, 2],
        3,
    ),
    "fill with zeros": (
        [
            node("Concat", ["n", "three"], ["s"], axis=0),
            node("ConstantOfShape", ["s"], ["z"]),
            node("Add", ["x", "z"], ["y"]),
        ],
        {"three": THREE},
        ["N", 3],
        2,
    ),
    "fill a product": (
        [
            node("Mul", ["n", "three"], ["m"]),
            node("ConstantOfShape", ["m"], ["z"]),
            node("Reshape", ["x", "flat"], ["v"]),
            node("Add", ["v", "z"], ["y"]),
        ],
        {"three": THREE, "flat": np.array([-1], np.int64)},
        ["N", 3],
        1,
    ),
    "torch's expand of -1": (
        [
            node("Concat", ["n", "minus", "two"], ["s"], axis=0),
            node("ConstantOfShape", ["three"], ["ones"]),
            node("Cast", ["ones"], ["ones64"], to=TensorProto.INT64),
            node("Add", ["ones64", "one"], ["true1"]),
            node("Equal", ["s", "minus"], ["is_minus"]),
            node("Where", ["is_minus", "true1", "s"], ["e"]),
            node("Expand", ["token", "e"], ["t"]),
            node("Add", ["t", "x"], ["y"]),
        ],
        {"two": TWO, "three": THREE, "minus": np.array([-1], np.int64), "token": TOKEN},
        ["N", 1, 2],
        3,
    ),
    "tile": (
        [
            node("Concat", ["n", "two"], ["r"], axis=0),
            node("Tile", ["row", "r"], ["t"]),
            node("Add", ["x", "t"], ["y"]),
        ],
        {"two": TWO, "row": np.array([[1.0, 2.0]], np.float32)},
        ["N", 4],
        2,
    ),
    "split the batch": (
        [
            node("Concat", ["n", "one", "minus"], ["s"], axis=0),
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("Reshape", ["t", "s"], ["y"]),
        ],
        {"minus": np.array([-1], np.int64)},
        ["N", 4],
        3,
    ),
    "reshape to half the batch": (
        [
            node("Mul", ["n", "two"], ["m"]),
            node("Div", ["m", "two"], ["h"]),
            node("Concat", ["h", "two", "three"], ["s"], axis=0),
            node("Reshape", ["x", "s"], ["y"]),
        ],
        {"two": TWO, "three": THREE},
        ["N", 6],
        3,
    ),
    "slice a table": (
        [node("Slice", ["table", "zero", "n", "zero"], ["t"]), node("Add", ["x", "t"], ["y"])],
        {"table": np.arange(24, dtype=np.float32).reshape(8, 3)},
        ["N", 3],
        2,
    ),
    "slice all": ([node("Slice", ["x", "zero", "n", "zero"], ["y"])], {}, ["N", 3], 2),
    "concatenate batches": ([node("Concat", ["x", "x"], ["y"], axis=0)], {}, ["N", 3], 2),
    "mean by the batch": (
        [node("Cast", ["n"], ["f"], to=TensorProto.FLOAT), node("Div", ["x", "f"], ["y"])],
        {},
        ["N", 3],
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_lengths_follow_the_open_batch(case):
    nodes, constants, shape, rank = CASES[case]
    check(model_of(nodes, {"x": shape}, constants, rank), *batches(*shape[1:]))


def test_concat_takes_an_open_axis_beside_a_number():
    model = model_of(
        [node("Concat", ["x", "c"], ["y"], axis=1)], {"x": ["N", 3]}, {"c": np.ones((2, 1), np.float32)}, 2
    )
    check(model, {"x": np.ones((2, 3), np.float32)})
    with pytest.raises(CompilerError):
        compile_model(model, "cpu").run(x=np.ones((3, 3), np.float32))


def test_squeeze_without_axes_on_an_open_axis_is_refused():
    model = model_of([node("Squeeze", ["x"], ["y"])], {"x": ["N", 3, 1]}, {}, 2)
    with pytest.raises(CompilerError, match="dims="):
        compile_model(model)


def test_the_length_of_a_computed_shape_is_refused_kindly():
    nodes = [node("Cast", ["x"], ["s"], to=TensorProto.INT64), node("ConstantOfShape", ["s"], ["y"])]
    with pytest.raises(CompilerError, match="known at compile time"):
        compile_model(model_of(nodes, {"x": [2]}, {}, 2))
