"""Special numbers, empty tensors and windows that reach past the end, against ONNX Runtime and torch."""

import random

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import mlhood
from tests.compiler.operators.test_operators import compare

TARGETS = ("interpreter", "cpu")
CASES = 40


def window(rng):
    """Return size, kernel, strides, pads and whether the last window may be cut, within what torch accepts."""
    kernel = [rng.randint(1, 4) for _ in "hw"]
    pads = [rng.randint(0, size // 2) for size in kernel]
    return [rng.randint(1, 7) for _ in "hw"], kernel, [rng.randint(1, 4) for _ in "hw"], pads, rng.random() < 0.7


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
def test_pools_have_the_windows_of_torch(new_model, operator, seed):
    rng = random.Random(seed)
    size, kernel, strides, pads, ceil = window(rng)
    include = rng.random() < 0.5
    x = torch.randn(1, 2, *size, generator=torch.Generator().manual_seed(seed))
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "ceil_mode": int(ceil)}
    if operator == "AveragePool":
        attributes["count_include_pad"] = int(include)
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    model = new_model([node], {"x": (TensorProto.FLOAT, [1, 2, *size])}, rank=4)
    try:
        if operator == "AveragePool":
            expected = torch.nn.functional.avg_pool2d(x, kernel, strides, pads, ceil, include)
        else:
            expected = torch.nn.functional.max_pool2d(x, kernel, strides, pads, 1, ceil)
    except RuntimeError:
        with pytest.raises(mlhood.errors.CompilerError):
            mlhood.compile(model)
        return
    for target in TARGETS:
        got = mlhood.compile(model, target=target).run(x=x.numpy())["y"]
        np.testing.assert_allclose(got, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("shape", "axis"), [((0, 7), 0), ((2, 0), 1), ((0, 7), 1)])
def test_softmax_of_nothing_is_nothing(new_model, operator, shape, axis):
    node = helper.make_node(operator, ["x"], ["y"], axis=axis)
    model = new_model([node], {"x": (TensorProto.FLOAT, ["n", shape[1]])})
    for target in TARGETS:
        assert mlhood.compile(model, target=target).run(x=np.zeros(shape, np.float32))["y"].shape == shape


def test_an_addend_times_zero_is_not_read(new_model):
    node = helper.make_node("Gemm", ["x", "w", "c"], ["y"], beta=0.0)
    weights = {"w": np.eye(2, dtype=np.float32), "c": np.array([np.nan, 1], np.float32)}
    compare(new_model([node], {"x": (TensorProto.FLOAT, ["n", 2])}, weights), {"x": np.ones((1, 2), np.float32)})


@pytest.mark.parametrize("operator", ["Add", "Sub"])
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("target", TARGETS)
def test_adding_zero_keeps_the_sign_that_it_gives(new_model, operator, zero, target):
    nodes = [helper.make_node(operator, ["x", "zero"], ["sum"]), helper.make_node("Reciprocal", ["sum"], ["y"])]
    model = new_model(nodes, {"x": (TensorProto.FLOAT, ["n"])}, {"zero": np.full(1, zero, np.float32)})
    x = np.array([-0.0, 0.0, 1.0], np.float32)
    with np.errstate(divide="ignore"):
        expected = 1 / (x + np.float32(zero) if operator == "Add" else x - np.float32(zero))
    np.testing.assert_array_equal(mlhood.compile(model, target=target).run(x=x)["y"], expected)


@pytest.mark.parametrize("scales", [[1, 1, 0.7, 1], [1, 1, 0.4, 1.7], [1, 1, 2, 0.5], [1, 1, 0.3, 0.6]])
def test_resize_of_opset_10_rounds_up_where_it_shrinks(new_model, scales):
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest")
    weights = {"scales": np.array(scales, np.float32)}
    model = new_model([node], {"x": (TensorProto.FLOAT, [1, 1, 7, 6])}, weights, opset=10, rank=4)
    compare(model, {"x": np.arange(42, dtype=np.float32).reshape(1, 1, 7, 6)})


COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
SAMPLINGS = [("nearest", {"nearest_mode": f"round_prefer_{side}"}) for side in ("floor", "ceil")]
SAMPLINGS += [("nearest", {"nearest_mode": side}) for side in ("floor", "ceil")] + [("linear", {}), ("cubic", {})]
RESIZES = [(*sampling, coordinates) for sampling in SAMPLINGS for coordinates in COORDINATES]
# by ONNX's reference, which also changes the elements along an axis that keeps its length
RARE = [("linear", {"antialias": 1}, "half_pixel"), ("cubic", {"exclude_outside": 1}, "half_pixel")]
RARE += [(mode, {}, "half_pixel_symmetric") for mode in ("linear", "cubic")]


@pytest.mark.parametrize(
    ("mode", "attributes", "coordinates", "scales"),
    [
        *((*each, scales) for each in RESIZES for scales in ((0.6, 0.7), (2, 0.5), (1, 3), (1.1, 1.2))),
        *((*each, scales) for each in RARE for scales in ((0.6, 0.7), (2, 0.5))),
    ],
)
def test_resize_by_scales(new_model, mode, attributes, coordinates, scales):
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, **attributes}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **attributes)
    weights = {"scales": np.array([1, 1, *scales], np.float32)}
    model = new_model([node], {"x": (TensorProto.FLOAT, [1, 2, 5, 4])}, weights, opset=19, rank=4)
    compare(model, {"x": np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype(np.float32)})


@pytest.mark.parametrize("factor", [1.5, 0.6, 2.3, 0.2])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resize_of_corners_by_scales_is_that_of_torch(new_model, mode, factor):
    attributes = {"mode": {"bilinear": "linear", "bicubic": "cubic"}[mode], "cubic_coeff_a": -0.75}
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], coordinate_transformation_mode="align_corners", **attributes
    )
    weights = {"scales": np.array([1, 1, factor, factor], np.float32)}
    model = new_model([node], {"x": (TensorProto.FLOAT, [1, 1, 5, 7])}, weights, opset=18, rank=4)
    x = torch.randn(1, 1, 5, 7, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.interpolate(x, scale_factor=factor, mode=mode, align_corners=True)
    for target in TARGETS:
        np.testing.assert_allclose(mlhood.compile(model, target=target).run(x=x.numpy())["y"], expected, atol=1e-5)
