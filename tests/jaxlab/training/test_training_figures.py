"""Figures of training: they show the data, and their labels do not overlap."""

import numpy as np
import pytest

from mlhood.jaxlab.training import training_figures
from mlhood.measure import Comparison, Measurement
from tests.plotting.texts import check_texts


def comparison():
    times = {"eager": 20e-3, "jit": 1.4e-3, "donate": 1.3e-3}
    noise = 1 + 0.1 * np.sin(np.arange(21))
    rows = {name: Measurement(tuple((time * noise).tolist()), run="one", agreed=True) for name, time in times.items()}
    return Comparison(rows, "eager")


NORMS = np.array([3.0, 0.01, 0.4, 20.0])
FIGURES = {
    "seconds": lambda: training_figures.step_seconds(comparison()),
    "norms": lambda: training_figures.gradient_norms(NORMS, np.minimum(NORMS, 1), 1.0),
    "norms, zero": lambda: training_figures.gradient_norms([0.0], [0.0], 1.0),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_bars_are_medians_in_milliseconds():
    (axes,) = training_figures.step_seconds(comparison()).axes
    expected = [measurement.median * 1e3 for measurement in comparison().measurements.values()]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], expected)
    assert "times as fast as eager" in axes.texts[1].get_text()
    assert "times" not in axes.texts[0].get_text()


def test_norms_are_sorted_and_the_clipped_ones_counted():
    (axes,) = training_figures.gradient_norms(NORMS, np.minimum(NORMS, 1), 1.0).axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [0.01, 0.4, 3, 20])
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), [0.01, 0.4, 1, 1])
    assert axes.get_title() == "2 of 4 are clipped"
