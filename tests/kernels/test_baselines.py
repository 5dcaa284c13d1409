"""The baselines compute the same as our convolution: otherwise a comparison of times would be meaningless."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.kernels import CONV2D, baselines

CASES = [(1, 0, 1, True), (2, 1, 1, False), (1, 1, 2, True)]


@pytest.mark.parametrize("library", [baselines.torch, baselines.onnx_runtime], ids=["torch", "onnx_runtime"])
@pytest.mark.parametrize(("stride", "padding", "groups", "with_bias"), CASES)
def test_a_library_agrees_with_the_definition(library, stride, padding, groups, with_bias):
    rng = np.random.default_rng(stride + groups)
    x, w = rng.standard_normal((2, 4, 9, 7), np.float32), rng.standard_normal((6, 4 // groups, 3, 2), np.float32)
    bias = rng.standard_normal(6, np.float32) if with_bias else None
    expected = CONV2D["naive"](x, w, bias, stride, padding, groups=groups)
    got = library(x, w, bias, stride, padding, groups=groups)()
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-4, atol=1e-4)


def test_torch_in_its_own_layouts_agrees():
    rng = np.random.default_rng(0)
    for channels in (3, 20):
        x = rng.standard_normal((1, channels, 9, 7), np.float32)
        w = rng.standard_normal((6, channels, 3, 3), np.float32)
        bias = rng.standard_normal(6, np.float32)
        got = baselines.torch_blocked(x, w, bias, 2, 1)()
        np.testing.assert_allclose(np.asarray(got), CONV2D["naive"](x, w, bias, 2, 1), rtol=1e-4, atol=1e-4)


def test_a_product_of_bytes_is_exact():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 128, (7, 30), np.uint8), rng.integers(-128, 128, (30, 5), np.int8)
    got = baselines.onnx_integer_product(a, b)()
    assert np.array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
