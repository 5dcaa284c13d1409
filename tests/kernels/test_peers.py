"""The peers compute what our own convolution does: a comparison with anything else would say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.kernels import CONV2D, peers

CASES = [(1, 0, 1, True), (2, 1, 1, False), (1, 1, 2, True)]


@pytest.mark.parametrize("library", [peers.torch, peers.onnx_runtime], ids=["torch", "onnx_runtime"])
@pytest.mark.parametrize(("stride", "padding", "groups", "with_bias"), CASES)
def test_a_library_makes_what_the_definition_makes(library, stride, padding, groups, with_bias):
    rng = np.random.default_rng(stride + groups)
    x, w = rng.standard_normal((2, 4, 9, 7), np.float32), rng.standard_normal((6, 4 // groups, 3, 2), np.float32)
    bias = rng.standard_normal(6, np.float32) if with_bias else None
    want = CONV2D["naive"](x, w, bias, stride, padding, groups=groups)
    got = library(x, w, bias, stride, padding, groups=groups)()
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)
