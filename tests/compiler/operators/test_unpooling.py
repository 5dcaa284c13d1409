"""Norms of windows, and windows that are put back, against ONNX Runtime, on every target."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.unpooling import Col2Im, LpPool, MaxUnpool
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, agree_single, single
from tests.tools.compiler.conformance import cases

OPERATORS = [{"LpPool"}, {"MaxUnpool"}, {"Col2Im"}]
UNPOOL = MaxUnpool((2, 2), (2, 2), (0, 0, 0, 0))
FOLD = Col2Im((4, 5), (2, 2), (1, 1), (0, 0, 0, 0), (1, 1))


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [2, 2], "p": 1, "strides": [2, 1]},
        {"kernel_shape": [2, 3], "p": 3, "pads": [1, 0, 0, 2]},
        {"kernel_shape": [2, 2], "dilations": [2, 3], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"},
    ],
)
def test_lp_pool(attributes):
    agree_single("LpPool", {"x": numbers(2, 3, 8, 9)}, opset=18, attributes=attributes)


@pytest.mark.parametrize("shape", [None, (2, 3, 8, 6), (2, 3, 9, 8)])
def test_max_unpool(shape):
    indices = np.arange(2 * 3 * 4 * 3).reshape(2, 3, 4, 3) * 4 + 1
    inputs = {"x": numbers(2, 3, 4, 3), "indices": indices}
    if shape is not None:
        inputs["shape"] = np.array(shape)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    wanted = None
    if shape == (2, 3, 9, 8):  # ONNX Runtime counts the indices in the larger tensor, ONNX's definition does not
        y = np.zeros((2, 3, 8, 6), np.float32)
        y.flat[indices] = inputs["x"]
        wanted = [np.pad(y, [(0, 0), (0, 0), (0, 1), (0, 2)])]
    model = single("MaxUnpool", inputs, opset=11, constants=["shape"] * (shape is not None), **attributes)
    if shape is not None:  # ONNX infers no lengths then
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, shape))
    agree(model, {name: inputs[name] for name in ("x", "indices")}, wanted=wanted)


def test_an_index_out_of_range_is_reported():
    inputs = {"x": numbers(1, 1, 1, 1), "indices": np.full((1, 1, 1, 1), 7)}
    graph = import_model(single("MaxUnpool", inputs, opset=11, kernel_shape=[2, 2]))
    with pytest.raises(CompilerError, match="an index is out of range"):
        Interpreter(graph).run(inputs)


@pytest.mark.parametrize(
    ("image", "kernel", "columns", "attributes"),
    [
        ((5, 5), (1, 5), 5, {}),
        ((5, 6), (2, 3), 16, {}),
        ((5, 5), (3, 3), 4, {"strides": [2, 2]}),
        ((5, 5), (1, 5), 15, {"pads": [0, 1, 0, 1]}),
        ((6, 6), (2, 2), 25, {"dilations": [1, 1]}),
        ((6, 6), (2, 2), 20, {"dilations": [1, 2]}),
        ((3, 4, 5), (1, 1, 5), 12, {}),
    ],
)
def test_col2im(image, kernel, columns, attributes):
    x = numbers(2, 3 * int(np.prod(kernel)), columns)
    inputs = {"x": x, "image": np.array(image), "kernel": np.array(kernel)}
    agree_single("Col2Im", inputs, opset=18, constants=["image", "kernel"], attributes=attributes, open_axes=False)


@pytest.mark.parametrize("case", [case for case in cases() if case.operators in OPERATORS], ids=lambda c: c.name)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_the_node_tests_pass(case, backend):
    case.run(backend=backend)


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (LpPool((2,), (1,), (0, 0), (1,), False, 0), [(1, 1, 4)], "must be positive"),
        (UNPOOL, [(1, 1, 2, 2), (1, 1, 2, 3)], "an index for each element"),
        (UNPOOL, [(1, 1, 2), (1, 1, 2)], "spatial axes"),
        (MaxUnpool((1,), (1,), (9, 9)), [(1, 1, 2), (1, 1, 2)], "the pads exceed"),
        (MaxUnpool((1,), (2**50,), (0, 0)), [(1, 1, 2), (1, 1, 2)], "too large"),
        (FOLD, [(1, 4, 11)], "do not cover"),
        (FOLD, [(1, 5, 12)], "whole windows"),
        (FOLD, [(4, 12)], "three axes"),
        (Col2Im((4,), (2, 2), (1, 1), (0,) * 4, (1, 1)), [(1, 4, 12)], "spatial axes"),
    ],
)
def test_invalid_operators(operator, shapes, message):
    types = [TensorType(element, shape) for element, shape in zip(("float32", "int64"), shapes, strict=False)]
    with pytest.raises(CompilerError, match=message):
        infer_output_types(operator, types, "here")
