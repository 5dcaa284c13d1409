"""NaN, infinities, ties and signed zeros on every target, against ONNX Runtime, torch where that differs, and NumPy."""

import warnings

import numpy as np
import pytest
import torch
from onnx import helper

from tests.compiler.operators.agreement import assert_agreement, session_of, single

nan, inf = np.nan, np.inf
NUMBERS = np.array([nan, 1, -1, inf, -inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -7, 8], np.float32)
PAIRS = np.array([(a, b) for a in NUMBERS for b in NUMBERS], np.float32).T.copy()


@pytest.fixture(autouse=True)
def without_warnings():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def check(op_type, inputs, n_outputs=1, *, opset=20, constants=(), attributes=None, **options):
    model = single(op_type, inputs, n_outputs, opset=opset, constants=constants, **(attributes or {}))
    given = {name: array for name, array in inputs.items() if array is not None and name not in constants}
    return assert_agreement(model, given, **options)


def of_each(operators, names, inputs, constants=()):
    """Return a model with an output of each operator, called as it."""
    model = single(operators[0], inputs, constants=constants)
    output = model.graph.output.pop()
    del model.graph.node[:]
    for operator in operators:
        model.graph.node.append(helper.make_node(operator, names, [operator]))
        info = model.graph.output.add()
        info.CopyFrom(output)
        info.name = operator
        if operator in COMPARISONS:
            info.type.tensor_type.elem_type = 9
    return model


UNARY = (
    "Abs Ceil Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log LogSoftmax Mish Neg Reciprocal "
)
UNARY += "Relu Round Selu Sigmoid Sign Softmax Softplus Softsign Sqrt Tanh ThresholdedRelu"
COMPARISONS = ("IsInf", "IsNaN", "Equal", "Greater", "LessOrEqual")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Equal", "Greater", "LessOrEqual")


def test_operators_of_one_number():
    assert_agreement(of_each(UNARY.split(), ["x"], {"x": NUMBERS}), {"x": NUMBERS})


@pytest.mark.parametrize("constants", [(), ("b",)])
def test_operators_of_two_numbers(constants):
    inputs = {"a": PAIRS[0], "b": PAIRS[1]}
    model = of_each(BINARY, ["a", "b"], inputs, constants)
    assert_agreement(model, {name: array for name, array in inputs.items() if name not in constants})


@pytest.mark.parametrize("number", [0.0, -0.0])
def test_zero_and_its_negative_are_two_kernels(number):
    inputs = {"a": np.array([1, -1, 8, -inf], np.float32), "b": np.array(number, np.float32)}
    check("Div", inputs, constants=("b",))


@pytest.mark.parametrize(
    "limits", [(0, 6), (nan, 1), (0, nan), (nan, nan), (2, 1), (-inf, inf), (inf, -inf), (-0.0, 0)]
)
def test_limits(limits):
    low, high = (np.array(limit, np.float32) for limit in limits)
    check("Clip", {"x": NUMBERS, "low": low, "high": high}, constants=("low", "high"), export=False)


@pytest.mark.parametrize("limits", [(nan, 1), (0, nan)])
def test_limits_and_what_is_merged_with_them(limits):
    low, high = (np.array(limit, np.float32) for limit in limits)
    model = single("Clip", {"x": NUMBERS[:3], "low": low, "high": high}, constants=("low", "high"))
    model.graph.node[0].output[0] = "z"
    model.graph.node.append(helper.make_node("Relu", ["z"], ["y0"]))
    assert_agreement(model, {"x": NUMBERS[:3]}, export=False)


# -- windows

WINDOWS = [
    {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 2, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
]


def masked(share, value, seed=0):
    """Return an image of random numbers, a share of which is masked."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, 3, 6, 7)).astype(np.float32)
    return np.where(rng.random(x.shape) < share, np.float32(value), x)


@pytest.mark.parametrize("attributes", WINDOWS)
@pytest.mark.parametrize(("share", "value"), [(0.4, -inf), (1, -inf), (0.4, inf), (1, 0)])
@pytest.mark.parametrize("column_major", [0, 1])
def test_the_indices_of_the_largest(attributes, share, value, column_major):
    x = masked(share, value)
    model = single("MaxPool", {"x": x}, 2, storage_order=column_major, **attributes)
    largest, indices = session_of(model).run(None, {"x": x})
    lowest = np.finfo(np.float32).min  # what ONNX Runtime has in a window of -inf, unlike torch
    assert_agreement(model, {"x": x}, wanted=[np.where(largest == lowest, -inf, largest), indices], xla=False)


@pytest.mark.parametrize("attributes", [window for window in WINDOWS if "pads" in window and "dilations" not in window])
@pytest.mark.parametrize("value", [-inf, nan, inf])
def test_the_largest_of_windows_is_that_of_torch(attributes, value):
    window = {**attributes, "pads": [1, 1, 1, 1]}
    x = masked(0.4, value)
    size, strides = window["kernel_shape"], window["strides"]
    expected = torch.nn.functional.max_pool2d(torch.tensor(x), size, strides, 1, 1, bool(window.get("ceil_mode", 0)))
    check("MaxPool", {"x": x}, attributes=window, wanted=[expected.numpy()], export=False)
    check("GlobalMaxPool", {"x": x}, wanted=[torch.tensor(x).amax((2, 3), True).numpy()], export=False)


@pytest.mark.parametrize("attributes", WINDOWS)
@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize("value", [0, inf, -inf, nan])
def test_means_of_windows(attributes, count_include_pad, value):
    x = masked(0.2, value)
    check("AveragePool", {"x": x}, attributes={**attributes, "count_include_pad": count_include_pad})


@pytest.mark.parametrize("value", [inf, nan])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_a_special_number_times_zero(operator, value):
    weight = np.array([[[[0, 1, -1]]], [[[2, 0, 0]]]], np.float32)
    inputs = {"x": masked(0.2, value)[:, :2], "w": weight}
    check(operator, inputs, constants=("w",), attributes={"group": 2, "pads": [0, 1, 0, 1]}, export=False)


# -- ties, rows that are masked as a whole

ROWS = np.array([[1, 2, 3, 2], [-inf] * 4, [inf, inf, 1, 0], [0.0, -0.0, 0, -0.0], [-inf, 1, -inf, 1]], np.float32)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_index_of_the_extreme_element(operator, last, axis):
    attributes = {"axis": axis, "select_last_index": last}
    check(operator, {"x": ROWS}, attributes=attributes)
    x = np.concatenate([ROWS, np.array([[2, nan, 3, nan]], np.float32)])
    function = {"ArgMax": np.argmax, "ArgMin": np.argmin}[operator]
    wanted = x.shape[axis] - 1 - function(np.flip(x, axis), axis) if last else function(x, axis)
    check(operator, {"x": x}, attributes={**attributes, "keepdims": 0}, wanted=[wanted], export=False)


@pytest.mark.parametrize("largest", [0, 1])
def test_ties_of_top_k(largest):
    inputs = {"x": ROWS, "k": np.array([3])}
    check("TopK", inputs, 2, constants=("k",), attributes={"largest": largest}, xla=False)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_softmax_of_masked_rows(operator):
    check(operator, {"x": ROWS}, attributes={"axis": 1})


@pytest.mark.parametrize(("element", "offset"), [("int8", 0), ("uint8", 3), ("int8", -5)])
def test_quantisation_saturates(element, offset):
    x = np.concatenate([NUMBERS, np.array([1e9, -1e9, 63.25, 63.75], np.float32)])
    inputs = {"x": x, "scale": np.array(0.5, np.float32), "offset": np.array(offset, element)}
    check("QuantizeLinear", inputs, constants=("scale", "offset"))
