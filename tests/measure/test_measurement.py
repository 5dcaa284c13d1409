"""Cells: statistics follow from the rounds, also when they are parsed."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import MeasureError
from mlhood.measure.measurement import Count, Measurement

measurements = st.builds(
    Measurement,
    st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40).map(tuple),
    st.none() | st.floats(1, 1e15),
    st.text(max_size=20),
    st.booleans(),
)


@given(measurements)
def test_a_measurement_survives_json(measurement):
    assert Measurement.from_dict(json.loads(json.dumps(measurement.to_dict()))) == measurement


def test_statistics():
    measurement = Measurement((0.004, 0.001, 0.002, 0.003, 0.005), flops=6e6)
    assert (measurement.median, measurement.rounds, measurement.iqr) == (0.003, 5, pytest.approx(0.002))
    assert measurement.quartiles == (0.002, 0.004)
    assert measurement.flops_per_second == pytest.approx(2e9)
    assert measurement.text("ms") == "3.00 ms (2.00–4.00), 2.00 GFLOP/s"


@pytest.mark.parametrize("seconds", [(), (0.0,), (-1.0,), (math.nan,), (1.0, math.inf)])
def test_times_are_positive_and_finite(seconds):
    with pytest.raises(MeasureError, match="a time for each round"):
        Measurement(seconds)


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": []},
        {"seconds": [1.0, "2"]},
        {"seconds": [10**400]},
        {"seconds": [True]},
        {"seconds": {"a": 1}},
        {"flops": -1},
        {"run": 7},
        {"run": "x" * 10_000},
        {"kind": "count"},
    ],
)
def test_invalid_measurements_are_refused(change):
    with pytest.raises(MeasureError):
        Measurement.from_dict({**Measurement((1.0, 2.0, 3.0)).to_dict(), **change})


@pytest.mark.parametrize("data", [None, [], "x", {}, {"kind": "measurement"}])
def test_other_data_are_refused(data):
    with pytest.raises(MeasureError):
        Measurement.from_dict(data)
    with pytest.raises(MeasureError):
        Count.from_dict(data)


def test_rounds_are_paired_only_within_a_run():
    drift = [1.0 + 0.1 * i for i in range(21)]
    a, b = (Measurement(tuple(f * x for x in drift), run="r") for f in (3.0, 1.0))
    other = Measurement(tuple(drift), run="s")
    assert a.ratio(b).low == pytest.approx(3.0)
    assert a.ratio(other).low < 2.9
    assert Measurement(a.seconds).ratio(Measurement(b.seconds)).low < 2.9


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", 2**63])
def test_invalid_counts_are_refused(value):
    with pytest.raises(MeasureError, match="invalid count"):
        Count(value)


def test_counts():
    assert Count.from_dict(json.loads(json.dumps(Count(12).to_dict()))) == Count(12)
    assert json.dumps(Count(np.int64(12)).to_dict()) == json.dumps(Count(12).to_dict())
    assert Count(12).ratio(Count(4)).value == 3
    assert Count(0).ratio(Count(0)).value == 1
    assert Count(1).ratio(Count(0)).value == math.inf
    assert Count(1_234_567).text("bytes") == "1,234,567 bytes"


def test_rates_are_those_of_the_median_and_the_quartiles():
    seconds = tuple(float(n) for n in range(1, 22))
    slow, middle, fast = (840 / n for n in (16, 11, 6))
    assert Measurement(seconds, flops=840.0).rates == pytest.approx((middle, slow, fast))
    assert Measurement(seconds).rates is None
