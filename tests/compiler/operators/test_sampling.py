"""GridSample and Resize against ONNX Runtime, on every target."""

import numpy as np
import pytest

from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree_single, single


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def grid(*shape):
    """Return coordinates, some of which are far outside of -1 to 1."""
    return np.random.default_rng(1).uniform(-2.5, 2.5, shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode, padding, aligned):
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    inputs = {"x": numbers(2, 3, 4, 5), "grid": grid(2, 6, 7, 2)}
    agree_single("GridSample", inputs, opset=16, attributes=attributes, export_opset=18)
    attributes["mode"] = mode.removeprefix("bi")
    agree_single("GridSample", inputs, opset=20, attributes=attributes, export_opset=21)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_of_volumes(mode, padding):
    inputs = {"x": numbers(2, 1, 3, 4, 5), "grid": grid(2, 2, 3, 4, 3)}
    agree_single("GridSample", inputs, opset=20, attributes={"mode": mode, "padding_mode": padding})


def test_a_grid_of_no_points():
    agree_single("GridSample", {"x": numbers(1, 2, 3, 3), "grid": grid(1, 0, 4, 2)}, opset=16)


def resize(x, *, roi=None, scales=None, sizes=None, opset=18, **attributes):
    inputs = {"x": x, "roi": roi, "scales": scales, "sizes": sizes}
    inputs = {name: array if array is None else np.asarray(array) for name, array in inputs.items()}
    given = [name for name in ("roi", "scales", "sizes") if inputs[name] is not None]
    agree_single("Resize", inputs, opset=opset, constants=given, attributes=attributes, open_axes=scales is not None)


def floats(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("factor", [0.3, 0.6, 1.7])
def test_antialias(mode, factor):
    resize(numbers(1, 2, 11, 13), scales=floats(1, 1, factor, factor), mode=mode, antialias=1)
    resize(numbers(1, 2, 11, 13), sizes=[1, 2, round(11 * factor), 9], mode=mode, antialias=1)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_aspect_ratio(policy, mode):
    options = {"mode": mode, "keep_aspect_ratio_policy": policy}
    resize(numbers(1, 2, 5, 7), sizes=[9, 8], axes=[2, 3], **options)
    resize(numbers(1, 2, 9, 8), sizes=[5, 7], axes=[2, 3], **options)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize(
    "region", [(0.1, 0.2, 0.8, 0.9), (0.0, 0.0, 1.0, 1.0), (-0.3, 0.2, 1.4, 0.7), (0.9, 0.8, 0.1, 0)]
)
def test_crop(mode, region):
    top, left, bottom, right = region
    roi = floats(0, 0, top, left, 1, 1, bottom, right)
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0, "mode": mode}
    resize(numbers(1, 2, 6, 7), roi=roi, sizes=[1, 2, 6, 4], **options)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_export(mode):
    resize(numbers(1, 2, 4, 5), scales=floats(1, 1, 2, 1.6), mode=mode)
    resize(numbers(1, 2, 4, 5), sizes=[1, 2, 3, 9], mode=mode, coordinate_transformation_mode="align_corners")


def test_a_region_of_the_wrong_length_is_refused():
    inputs = {"x": numbers(1, 1, 2, 2), "roi": floats(0, 1), "scales": None, "sizes": np.array([1, 1, 3, 3])}
    model = single(
        *("Resize", inputs),
        opset=18,
        constants=("roi", "sizes"),
        coordinate_transformation_mode="tf_crop_and_resize",
        mode="linear",
    )
    with pytest.raises(CompilerError, match="region"):
        import_model(model)
