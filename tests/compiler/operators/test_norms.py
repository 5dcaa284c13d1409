"""Norms and determinants against ONNX Runtime, on every target."""

import numpy as np
import pytest

from tests.compiler.operators.agreement import agree_single


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("attributes", [{}, {"p": 1}, {"axis": 0}, {"axis": 1, "p": 1}])
def test_lp_normalization(attributes):
    agree_single("LpNormalization", {"x": numbers(3, 4, 2)}, attributes=attributes)


def test_the_norm_of_zeros():
    x = numbers(2, 3)
    x[0] = 0
    agree_single("LpNormalization", {"x": x})


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 1, 1), (2, 0, 2, 2)])
def test_determinant(shape):
    agree_single("Det", {"x": numbers(*shape)}, opset=11)
