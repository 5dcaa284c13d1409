"""Multiplying by reals with integers alone, against Python's own integers and fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.operators.fixed_point import FixedPoint, fixed_points, round_shift
from mlhood.errors import CompilerError

few = settings(max_examples=200)
scales = st.floats(2.0**-24, 2.0**12)
accumulators = st.integers(-(2**31), 2**31 - 1)


@few
@given(scale=scales, x=accumulators)
def test_it_is_one_product_and_one_shift(scale, x):
    point = FixedPoint.of(scale)
    assert 0 <= point.shift <= 62
    exact = (x * point.multiplier + ((1 << point.shift) >> 1)) >> point.shift
    assert point.apply(np.array(x)) == exact
    assert abs(x * point.multiplier) < 2**63


@few
@given(scale=scales)
def test_it_is_within_a_31st_of_a_bit(scale):
    point = FixedPoint.of(scale)
    assert abs(Fraction(point.multiplier, 2**point.shift) - Fraction(scale)) <= Fraction(scale) / 2**31
    assert point.real == pytest.approx(scale, rel=2**-31)


@few
@given(scale=scales, x=st.integers(-(2**20), 2**20))
def test_the_result_is_the_rounded_product(scale, x):
    got = int(FixedPoint.of(scale).apply(np.array(x)))
    assert abs(got - Fraction(scale) * x) <= Fraction(1, 2) + abs(Fraction(scale) * x) / 2**31


@pytest.mark.parametrize("exponent", range(-30, 10))
def test_a_power_of_two_is_a_pure_shift(exponent):
    point = FixedPoint.of(2.0**exponent)
    assert point.multiplier == (1 if exponent <= 0 else 2**exponent)
    assert point.shift == max(-exponent, 0)


def test_ties_go_up():
    x = np.array([-5, -3, -1, 1, 3, 5])
    np.testing.assert_array_equal(FixedPoint.of(0.5).apply(x), [-2, -1, 0, 1, 2, 3])
    np.testing.assert_array_equal(round_shift(x, np.array(0)), x)


@few
@given(bits=st.integers(1, 61), seed=st.integers(0, 2**31), scale=st.floats(1e-300, 1e300))
def test_nothing_overflows(bits, seed, scale):
    x = np.random.default_rng(seed).integers(-(2**bits), 2**bits, 50)
    x[:2] = 2**bits, -(2**bits)
    point = FixedPoint.of(scale, bits)
    half = (1 << point.shift) >> 1
    exact = [(int(one) * point.multiplier + half) >> point.shift for one in x]
    assert point.apply(x).tolist() == exact


def test_scales_out_of_reach():
    x = np.array([-3, 0, 3])
    np.testing.assert_array_equal(FixedPoint.of(0.0).apply(x), [0, 0, 0])
    np.testing.assert_array_equal(FixedPoint.of(1e-40).apply(x), [0, 0, 0])
    assert (np.abs(FixedPoint.of(1e40).apply(x)[[0, 2]]) > 2**30).all()  # saturates in whatever follows
    np.testing.assert_array_equal(FixedPoint.of(-0.25).apply(np.array([8, -8])), [-2, 2])


@pytest.mark.parametrize("scale", [math.inf, math.nan])
def test_a_scale_must_be_finite(scale):
    with pytest.raises(CompilerError, match="a scale must be finite"):
        FixedPoint.of(scale)


@few
@given(first=scales, second=scales, seed=st.integers(0, 2**31))
def test_a_sum_is_rounded_once(first, second, seed):
    draw = np.random.default_rng(seed)
    acc, z = draw.integers(-(2**31), 2**31, 20), draw.integers(-256, 257, 20)
    (m, n), shift = fixed_points([np.array(first), np.array(second)], [31, 8], 52)
    exact = [
        (int(a) * int(m) + int(b) * int(n) + ((1 << int(shift)) >> 1)) >> int(shift)
        for a, b in zip(acc, z, strict=True)
    ]
    assert round_shift(acc * m + z * n, shift).tolist() == exact
    wanted = [Fraction(first) * int(a) + Fraction(second) * int(b) for a, b in zip(acc, z, strict=True)]
    for got, want, a in zip(exact, wanted, acc, strict=True):
        error = abs(int(a)) * Fraction(1, 2 ** int(shift)) + Fraction(1, 2) + Fraction(256, 2 ** int(shift))
        assert abs(got - want) <= error or abs(int(m)) >= 2**30 or abs(int(n)) >= 2**52


def test_channels_have_shifts_of_their_own():
    scales = np.array([0.5, 0.3, 1000.0, 1e-6])
    (multipliers,), shift = fixed_points([scales], [31])
    np.testing.assert_allclose(multipliers / 2.0**shift, scales, rtol=2**-31)
    assert len(set(shift.tolist())) == 4
