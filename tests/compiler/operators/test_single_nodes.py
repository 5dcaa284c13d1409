"""Nodes that index, sample, or compute element by element, against ONNX Runtime, on every target."""

import numpy as np
import pytest
import torch

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.sampling import RoiAlign
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, agree_single, node_of, single

RNG = np.random.default_rng(0)


def reals(*shape):
    return (3 * RNG.standard_normal(shape)).astype(np.float32)


def integers(low, high, *shape, dtype=np.int64):
    return RNG.integers(low, high, shape, dtype)


X, IMAGES, VOLUMES, GRID = reals(3, 4, 5), reals(2, 3, 4, 5), reals(2, 1, 3, 4, 5), reals(2, 6, 7, 2)
NUMBERS = np.array([[-np.inf, np.inf, np.nan, -0.0, -3, -1, -0.7, -0.5, 0.2, 0.5, 1, 1.2, 4]], np.float32)
REGIONS = np.array([[0, 0, 9, 7], [3, 2, 5.5, 6], [-4, 1, 20, 30], [4, 4, 4, 4], [50, 50, 60, 60]], np.float32)
TRIGONOMETRY = ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan")
PADDINGS = ("zeros", "border", "reflection")

# Beside ONNX's node tests: the operator, its inputs, its attributes and the opset.
CASES = [
    *[
        ("GatherElements", [x, integers(0, 3, *shape, dtype=np.int32)], {}, 13)
        for x, shape in ((X, (7, 3, 4)), (X[0], (0, 4)))
    ],
    ("GatherND", [X, integers(-3, 3, 0, 2)], {}, 13),
    ("GatherND", [reals(3, 3, 5), integers(-3, 3, 3, 3, 2, 1)], {"batch_dims": 2}, 13),
    ("ScatterND", [reals(3, 4), np.zeros((0, 1), np.int64), reals(0, 4)], {}, 18),
    ("DepthToSpace", [reals(0, 4, 2, 2)], {"blocksize": 2}, 13),
    *[
        ("GridSample", [IMAGES, GRID], {"mode": mode, "padding_mode": padding, "align_corners": aligned}, opset)
        for opset, modes in ((16, ("bicubic",)), (20, ("linear", "nearest", "cubic")))
        for mode in modes
        for padding in PADDINGS
        for aligned in (0, 1)
    ],
    *[
        ("GridSample", [VOLUMES, reals(2, 2, 3, 4, 3)], {"mode": mode, "padding_mode": padding}, 20)
        for mode in ("linear", "nearest")
        for padding in PADDINGS
    ],
    ("GridSample", [IMAGES, GRID[:, :0]], {}, 16),
    *[
        (
            "RoiAlign",
            [reals(2, 3, 8, 10), REGIONS, np.array([0, 1, 1, 0, 1])],
            {
                "output_height": 2,
                "output_width": 3,
                "spatial_scale": 0.75,
                "sampling_ratio": samples,
                "mode": mode,
                "coordinate_transformation_mode": pixels,
            },
            16,
        )
        for mode in ("avg", "max")
        for samples in (0, 2)
        for pixels in ("half_pixel", "output_half_pixel")
    ],
    ("RoiAlign", [reals(2, 3, 8, 10), REGIONS, np.array([0, 1, 1, 0, 1])], {"output_height": 2, "output_width": 2}, 10),
    *[(name, [NUMBERS], {}, 20) for name in TRIGONOMETRY],
    ("Shrink", [np.arange(-4, 5)], {"lambd": 1.5, "bias": 1.0}, 20),
    ("Celu", [NUMBERS], {"alpha": 2.5}, 12),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_node_computes_what_onnx_runtime_does(case):
    op_type, _, _, opset = case
    old_grid = op_type == "GridSample" and opset < 20  # its modes have other names
    model, inputs = node_of(*case)
    agree(model, inputs, open_axes=op_type != "GatherND", export_opset=18 if old_grid else 21)


def test_space_to_depth_with_channels_first():
    wanted = torch.nn.functional.pixel_unshuffle(torch.from_numpy(x := reals(2, 3, 4, 6)), 2).numpy()
    attributes = {"blocksize": 2, "mode": "CRD"}
    agree_single("SpaceToDepth", {"x": x}, opset=28, attributes=attributes, wanted=[wanted], open_axes=False)


def resize(x, *, roi=None, scales=None, sizes=None, **attributes):
    inputs = {"x": x, "roi": roi, "scales": scales, "sizes": sizes}
    inputs = {name: array if array is None else np.asarray(array) for name, array in inputs.items()}
    given = [name for name in ("roi", "scales", "sizes") if inputs[name] is not None]
    agree_single("Resize", inputs, opset=18, constants=given, attributes=attributes, open_axes=scales is not None)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("factor", [0.3, 0.6, 1.7])
def test_antialias(mode, factor):
    resize(reals(1, 2, 11, 13), scales=np.float32([1, 1, factor, factor]), mode=mode, antialias=1)
    resize(reals(1, 2, 11, 13), sizes=[1, 2, round(11 * factor), 9], mode=mode, antialias=1)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_aspect_ratio(policy, mode):
    options = {"mode": mode, "keep_aspect_ratio_policy": policy, "axes": [2, 3]}
    resize(reals(1, 2, 5, 7), sizes=[9, 8], **options)
    resize(reals(1, 2, 9, 8), sizes=[5, 7], **options)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("region", [(0.1, 0.2, 0.8, 0.9), (-0.3, 0.2, 1.4, 0.7), (0.9, 0.8, 0.1, 0)])
def test_crop(mode, region):
    top, left, bottom, right = region
    roi = np.float32([0, 0, top, left, 1, 1, bottom, right])
    options = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0, "mode": mode}
    resize(reals(1, 2, 6, 7), roi=roi, sizes=[1, 2, 6, 4], **options)


# -- what is refused


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("GatherElements", {"x": reals(3, 4), "i": np.array([[3]])}),
        ("ScatterElements", {"x": reals(3, 4), "i": np.array([[-4]]), "u": reals(1, 1)}),
        ("ScatterND", {"x": reals(3, 4), "i": np.array([[0, 4]]), "u": reals(1)}),
    ],
)
def test_an_index_out_of_range_is_an_error(name, inputs):
    with pytest.raises(CompilerError, match="out of range"):
        Interpreter(import_model(single(name, inputs, opset=18))).run(inputs)


CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "message"),
    [
        ("DepthToSpace", [reals(1, 6, 2, 2)], {"blocksize": 2}, "multiple"),
        ("SpaceToDepth", [reals(1, 6, 3, 2)], {"blocksize": 2}, "multiple"),
        ("Tan", [np.arange(3)], {}, "floating-point"),
        ("Resize", [reals(1, 1, 2, 2), [np.float32([0, 1]), None, np.array([1, 1, 3, 3])]], CROP, "region"),
    ],
)
def test_an_invalid_node_is_refused(name, inputs, attributes, message):
    with pytest.raises(CompilerError, match=message):
        import_model(node_of(name, inputs, attributes, 18)[0])


@pytest.mark.parametrize(
    ("batch", "end", "message"),
    [(2, 1.0, "out of range"), (0, 1e30, "too large"), (0, np.nan, "too large")],
)
def test_invalid_regions(batch, end, message):
    region = np.array([[0, 0, end, 1]], np.float32)
    with pytest.raises(CompilerError, match=message):
        RoiAlign().evaluate(np.ones((1, 1, 4, 4), np.float32), region, np.array([batch]))


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (RoiAlign(0), [(1, 1, 4, 4), (2, 4), (2,)], "must be positive"),
        (RoiAlign(mode="sum"), [(1, 1, 4, 4), (2, 4), (2,)], "unknown mode"),
        (RoiAlign(), [(1, 1, 4, 4), (2, 5), (2,)], "four coordinates"),
        (RoiAlign(samples=2**30), [(1, 1, 4, 4), (2, 4), (2,)], "not supported"),
    ],
)
def test_regions_that_do_not_fit(operator, shapes, message):
    types = [TensorType(element, shape) for element, shape in zip(("float32", "float32", "int64"), shapes, strict=True)]
    with pytest.raises(CompilerError, match=message):
        infer_output_types(operator, types, "here")
