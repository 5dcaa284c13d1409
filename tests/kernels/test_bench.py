"""The alternatives that P3 compares compute the same; no test depends on times."""

import numpy as np
import pytest

from mlhood.kernels import CONV2D, baselines, bench
from mlhood.kernels.layers import Layer


def test_all_convolutions_agree():
    layers = [Layer(4, 8, 8, 3), Layer(4, 9, 8, 1, 2)]
    for layer, case in zip(layers, bench.conv_cases(1, 21, "hot", layers), strict=True):
        assert case.name == layer.name
        assert list(case.ratios) == ["torch, own layout", "onnxruntime", "im2col_blas", "im2col_gemm"]
        assert all(measured.agreed for measured in case.result.measurements.values())
        assert case.ratios["onnxruntime"] == case.result["onnxruntime"].ratio(case.result["direct"])


@pytest.mark.parametrize("library", [baselines.torch_blocked, baselines.onnx_runtime], ids=["torch", "onnx_runtime"])
@pytest.mark.parametrize(("channels", "stride", "padding", "with_bias"), [(3, 1, 0, True), (20, 2, 1, False)])
def test_a_library_agrees_with_the_definition(library, channels, stride, padding, with_bias):
    rng = np.random.default_rng(stride)
    x, w = rng.standard_normal((2, channels, 9, 7), np.float32), rng.standard_normal((6, channels, 3, 2), np.float32)
    bias = rng.standard_normal(6, np.float32) if with_bias else None
    expected = CONV2D["naive"](x, w, bias, stride, padding)
    np.testing.assert_allclose(np.asarray(library(x, w, bias, stride, padding)()), expected, rtol=1e-4, atol=1e-4)
