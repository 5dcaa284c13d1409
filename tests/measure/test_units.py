import pytest

from mlhood.errors import MeasureError
from mlhood.measure.units import digits, duration, rate, times


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0012345, "0.00123"), (12.34, "12.3"), (999.6, "1,000"), (1234.5, "1,230"), (-2.5, "-2.50")],
)
def test_three_digits(value, text):
    assert digits(value) == text


@pytest.mark.parametrize(
    ("seconds", "unit", "text"),
    [
        (0.00321, None, "3.21 ms"),
        (2, None, "2.00 s"),
        (3e-7, None, "300 ns"),
        (1e-12, None, "0.00100 ns"),
        (0.5, "ms", "500 ms"),
        (12e-6, "us", "12.0 us"),
    ],
)
def test_durations(seconds, unit, text):
    assert duration(seconds, unit) == text


def test_an_unknown_unit_is_refused():
    with pytest.raises(MeasureError, match="unit of time"):
        duration(1.0, "fortnight")


def test_rates_and_speedups():
    assert rate(36.1e9) == "36.1 GFLOP/s"
    assert rate(53.8e9, "B/s") == "53.8 GB/s"
    assert rate(5) == "5.00 FLOP/s"
    assert rate(0.5) == "0.500 FLOP/s"
    assert times(3.247) == "3.25x"
