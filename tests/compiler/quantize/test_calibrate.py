"""Calibration: from distributions to ranges."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization
from mlhood.compiler.quantize import Distribution, calibrate_range
from mlhood.compiler.quantize.schema import choose_parameters, dequantize_array, quantize_array
from mlhood.errors import CompilerError


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(0).standard_normal(200_000, np.float32)


def noise(x, low, high):
    parameters = Quantization(*((x,) for x in choose_parameters(low, high)))
    return np.mean(np.square(dequantize_array(quantize_array(x, parameters, "int8"), parameters) - x))


def test_none_returns_the_full_range(normal):
    assert calibrate_range(Distribution.of(normal)) == (normal.min(), normal.max())


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.9, 100.0])
def test_percentile(normal, percentile):
    distribution = Distribution.of(normal)
    low, high = calibrate_range(distribution, "percentile", percentile=percentile)
    share = np.mean((normal >= low) & (normal <= high))
    width = distribution.edges[1] - distribution.edges[0]
    tighter = np.mean(np.abs(normal) <= max(-low, high) - 2 * width)
    assert tighter < percentile / 100 <= share


@pytest.mark.parametrize("method", ["percentile", "kl"])
@pytest.mark.parametrize("kind", ["positive", "both signs"])
def test_outliers_are_excluded(normal, method, kind):
    x = np.concatenate([np.abs(normal) if kind == "positive" else normal, np.float32([30.0])])
    distribution = Distribution.of(x)
    low, high = calibrate_range(distribution, method)
    assert 2 < high < 8
    assert (low < -2) is (kind == "both signs")
    assert noise(x[:-1], low, high) < noise(x[:-1], *calibrate_range(distribution)) / 10


def test_zeros_are_ignored(normal):
    relu = np.maximum(normal - 1, 0)  # nine out of ten are zero
    low, high = calibrate_range(Distribution.of(relu), "kl")
    assert (low, high > 0.75 * relu.max()) == (0, True)


@pytest.mark.parametrize("method", ["none", "percentile", "kl"])
def test_constant_and_uniform_data(method):
    assert calibrate_range(Distribution.of(np.full(9, 2, np.float32)), method) == (2, 2)
    x = np.linspace(-1, 2, 100_001, dtype=np.float32)
    low, high = calibrate_range(Distribution.of(x), method, percentile=100)
    assert (low, high) == (pytest.approx(-1, abs=0.02), pytest.approx(2, abs=0.02))


def test_kl_needs_more_bins_than_levels_and_enough_elements(normal):
    distribution = Distribution.of(normal)
    assert calibrate_range(distribution, "kl", levels=65_535) == calibrate_range(distribution)
    few = Distribution.of(normal[:1000])
    assert calibrate_range(few, "kl") == calibrate_range(few)


def test_invalid_arguments():
    distribution = Distribution.of(np.zeros(3, np.float32))
    with pytest.raises(CompilerError, match="unknown calibration"):
        calibrate_range(distribution, "guess")
    with pytest.raises(CompilerError, match="invalid percentile"):
        calibrate_range(distribution, "percentile", percentile=0)
