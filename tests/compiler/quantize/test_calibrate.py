"""From distributions to ranges."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization
from mlhood.compiler.quantize import Distribution, calibrated
from mlhood.compiler.quantize.schema import choose_parameters, dequantize_array, quantize_array
from mlhood.errors import CompilerError


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(0).standard_normal(200_000, np.float32)


def noise(x, low, high):
    parameters = Quantization(*((one,) for one in choose_parameters(low, high)))
    return np.mean(np.square(dequantize_array(quantize_array(x, parameters, "int8"), parameters) - x))


def test_none_is_the_whole_range(normal):
    assert calibrated(Distribution.of(normal)) == (normal.min(), normal.max())


@pytest.mark.parametrize("percentile", [50.0, 90.0, 99.0, 99.9, 100.0])
def test_percentile(normal, percentile):
    found = Distribution.of(normal)
    low, high = calibrated(found, "percentile", percentile=percentile)
    share = np.mean((normal >= low) & (normal <= high))
    width = found.edges[1] - found.edges[0]
    tighter = np.mean(np.abs(normal) <= max(-low, high) - 2 * width)
    assert tighter < percentile / 100 <= share


@pytest.mark.parametrize("method", ["percentile", "kl"])
@pytest.mark.parametrize("kind", ["one side", "both sides"])
def test_outliers_are_cut_off(normal, method, kind):
    x = np.concatenate([np.abs(normal) if kind == "one side" else normal, np.float32([30.0])])
    found = Distribution.of(x)
    low, high = calibrated(found, method)
    assert 2 < high < 8
    assert (low < -2) is (kind == "both sides")
    assert noise(x[:-1], low, high) < noise(x[:-1], *calibrated(found)) / 10


def test_zeros_do_not_count(normal):
    relu = np.maximum(normal - 1, 0)  # nine out of ten are zero
    low, high = calibrated(Distribution.of(relu), "kl")
    assert (low, high > 0.75 * relu.max()) == (0, True)


@pytest.mark.parametrize("method", ["none", "percentile", "kl"])
def test_nothing_to_choose(method):
    assert calibrated(Distribution.of(np.full(9, 2, np.float32)), method) == (2, 2)
    x = np.linspace(-1, 2, 100_001, dtype=np.float32)
    low, high = calibrated(Distribution.of(x), method, percentile=100)
    assert (low, high) == (pytest.approx(-1, abs=0.02), pytest.approx(2, abs=0.02))


def test_divergence_needs_more_bins_than_levels_and_more_than_a_few_elements(normal):
    found = Distribution.of(normal)
    assert calibrated(found, "kl", levels=65_535) == calibrated(found)
    few = Distribution.of(normal[:1000])
    assert calibrated(few, "kl") == calibrated(few)


def test_what_is_unknown():
    found = Distribution.of(np.zeros(3, np.float32))
    with pytest.raises(CompilerError, match="no such calibration"):
        calibrated(found, "guess")
    with pytest.raises(CompilerError, match="no percentile"):
        calibrated(found, "percentile", percentile=0)
