"""Figures of training: they show the data, and their labels do not overlap."""

import numpy as np
import pytest

from mlhood.jaxlab.training import training_figures
from mlhood.measure import Comparison, Measurement
from mlhood.plotting.alt_text import alt_text
from tests.plotting.texts import check_texts


def comparison():
    times = {"eager": 20e-3, "jit": 1.4e-3, "donate": 1.3e-3}
    noise = 1 + 0.1 * np.sin(np.arange(21))
    rows = {name: Measurement(tuple((time * noise).tolist()), run="one", agreed=True) for name, time in times.items()}
    return Comparison(rows, "eager")


NORMS, IMAGES = np.array([3.0, 0.01, 0.4, 20.0]), np.eye(8).reshape(1, 1, 8, 8).repeat(4, 0)
FIGURES = {
    "seconds": lambda: training_figures.step_seconds(comparison()),
    "gradients": lambda: training_figures.largest_gradients(IMAGES, [1, 2, 3, 4], NORMS, [0], "after 9 steps", 2),
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


def test_the_largest_gradients_are_shown_and_the_false_labels_marked():
    figure = FIGURES["gradients"]()
    axes, *panels = figure.axes
    right, false = axes.lines
    np.testing.assert_array_equal(right.get_ydata(), [20, 0.4, 0.01])
    np.testing.assert_array_equal(false.get_xydata(), [[2, 3]])
    assert [panel.get_title() for panel in panels] == ["“4”", "“1”"]
    assert "4 (right, norm 20), 1 (false, norm 3)" in alt_text(figure)
