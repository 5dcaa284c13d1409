"""Medians of ratios and their intervals: exact, independent of the order, and symmetric under inversion."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.measure.ratio import Ratio, interval, median_ratio, middle, quartiles

times = st.floats(1e-9, 1e3)
rounds = st.lists(times, min_size=1, max_size=60)
pairs = st.lists(st.tuples(times, times), min_size=1, max_size=60)


@given(rounds)
def test_the_interval_contains_the_median_and_ends_at_values(values):
    low, high = interval(values)
    assert low in values
    assert high in values
    assert low <= statistics.median(values) <= high
    assert low <= middle(values) * (1 + 1e-12)
    assert middle(values) <= high * (1 + 1e-12)


@given(rounds, st.randoms())
def test_the_order_of_rounds_does_not_matter(values, draw):
    shuffled = draw.sample(values, len(values))
    assert interval(shuffled) == interval(values)
    assert quartiles(shuffled) == quartiles(values)


@given(pairs)
def test_exchanging_the_sides_inverts_the_ratio(both):
    a, b = zip(*both, strict=True)
    forward, backward = median_ratio(a, b, paired=True), median_ratio(b, a, paired=True)
    inverse = 1 / backward.value, 1 / backward.high, 1 / backward.low
    assert (forward.value, forward.low, forward.high) == pytest.approx(inverse)
    assert forward.low <= forward.value * (1 + 1e-12)
    assert forward.value <= forward.high * (1 + 1e-12)


@given(pairs, st.lists(times, min_size=60, max_size=60))
def test_a_disturbance_of_both_sides_of_a_round_cancels(both, slowed):
    a, b = zip(*both, strict=True)
    scaled = [(x * s, y * s) for (x, y), s in zip(both, slowed[: len(both)], strict=True)]
    c, d = zip(*scaled, strict=True)
    plain, other = median_ratio(a, b, paired=True), median_ratio(c, d, paired=True)
    assert (other.value, other.low, other.high) == pytest.approx((plain.value, plain.low, plain.high), rel=1e-9)


def test_a_few_outliers_do_not_move_the_ratio_much():
    quiet = [1.0 + i * 1e-3 for i in range(21)]
    noisy = [*quiet[:-5], *[1000.0] * 5]
    ratio = median_ratio(noisy, [1.0] * 21, paired=True)
    assert ratio.value == pytest.approx(1.01)
    assert ratio.high == pytest.approx(1.015)


@pytest.mark.parametrize(("n", "low", "high"), [(1, 1, 1), (5, 1, 5), (21, 6, 16), (41, 14, 28), (100, 39, 62)])
def test_the_ends_are_these_order_statistics(n, low, high):
    assert interval(range(1, n + 1)) == (low, high)


@pytest.mark.parametrize("n", [5, 21, 22, 41])
def test_the_exact_interval_is_that_of_many_resamples(n):
    values = np.arange(1, n + 1)
    draws = np.random.default_rng(0).choice(values, (20_000, n))
    low, high = interval(values.tolist())
    medians = np.sort(draws, axis=1)
    assert np.mean(medians[:, (n - 1) // 2] <= low) <= 0.027 or low == 1
    assert np.mean(medians[:, n // 2] >= high) <= 0.027 or high == n
    assert np.mean(medians[:, (n - 1) // 2] <= low + 1) > 0.023  # the next value inwards would be too far


@pytest.mark.parametrize("n", [21, 31, 50])
def test_the_interval_has_its_nominal_coverage(n):
    draws = np.random.default_rng(1).exponential(1.0, (2_000, n))
    intervals = [interval(draw.tolist()) for draw in draws]
    covered = np.mean([low <= np.log(2) <= high for low, high in intervals])
    assert 0.94 <= covered <= 0.99


def test_unpaired_intervals_are_wider():
    drift = [1.0 + 0.1 * i for i in range(21)]
    paired = median_ratio([2 * x for x in drift], drift, paired=True)
    unpaired = median_ratio([2 * x for x in drift], drift, paired=False)
    assert (paired.low, paired.high) == (2.0, 2.0)
    assert unpaired.value == pytest.approx(2.0)
    assert unpaired.low < 2.0 < unpaired.high


def test_a_ratio_is_formatted():
    ratio = Ratio(1.234, 1.2, 1.3)
    assert str(ratio) == "1.23 [1.20, 1.30]"


@given(rounds)
def test_quartiles_are_numpys(values):
    assert quartiles(values) == pytest.approx(tuple(np.quantile(values, [0.25, 0.75])))
