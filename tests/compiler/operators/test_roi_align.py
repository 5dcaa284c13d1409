"""Pooling of regions against ONNX Runtime, on every target."""

import numpy as np
import pytest

from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.sampling import RoiAlign
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree_single
from tests.tools.compiler.conformance import cases

REGIONS = np.array([[0, 0, 9, 7], [3, 2, 5.5, 6], [-4, 1, 20, 30], [4, 4, 4, 4], [50, 50, 60, 60]], np.float32)


def inputs():
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 10)).astype(np.float32)
    return {"x": x, "regions": REGIONS, "batch": np.array([0, 1, 1, 0, 1])}


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("pixels", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode, samples, pixels):
    sizes = {"output_height": 2, "output_width": 3, "spatial_scale": 0.75, "sampling_ratio": samples}
    attributes = {**sizes, "mode": mode, "coordinate_transformation_mode": pixels}
    agree_single("RoiAlign", inputs(), opset=16, attributes=attributes)


def test_the_old_coordinates():
    agree_single("RoiAlign", inputs(), opset=10, attributes={"output_height": 2, "output_width": 2})


@pytest.mark.parametrize("case", [case for case in cases() if case.operators == {"RoiAlign"}], ids=lambda c: c.name)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_the_node_tests_pass(case, backend):
    case.run(backend=backend)


@pytest.mark.parametrize(
    ("batch", "end", "message"),
    [(2, 1.0, "of no image"), (0, 1e30, "too large"), (0, np.nan, "too large"), (0, np.inf, "too large")],
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
        (RoiAlign(), [(1, 1, 4), (2, 4), (2,)], "must be images"),
        (RoiAlign(), [(1, 1, 4, 4), (2, 5), (2,)], "four coordinates"),
        (RoiAlign(), [(1, 1, 4, 4), (2, 4), (3,)], "four coordinates"),
        (RoiAlign(samples=2**30), [(1, 1, 4, 4), (2, 4), (2,)], "not supported"),
    ],
)
def test_invalid_operators(operator, shapes, message):
    types = [TensorType(element, shape) for element, shape in zip(("float32", "float32", "int64"), shapes, strict=True)]
    with pytest.raises(CompilerError, match=message):
        infer_output_types(operator, types, "here")
