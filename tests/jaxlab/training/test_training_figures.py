"""Figures of training: they show the data, and their labels do not overlap."""

import numpy as np
import pytest

from mlhood.errors import XlaError
from mlhood.jaxlab.training import training_figures
from mlhood.jaxlab.training.train_loop import History
from mlhood.measure import Comparison, Measurement
from tests.plotting.texts import check_texts


def history(steps, seed=0):
    losses = np.exp(-np.arange(steps) / 30) * np.random.default_rng(seed).uniform(0.5, 2, steps)
    return History(tuple(losses.tolist()), {steps // 2: 0.9, steps: 0.953})


def comparison():
    times = {"eager": 20e-3, "jit": 1.4e-3, "donate": 1.3e-3}
    noise = 1 + 0.1 * np.sin(np.arange(21))
    rows = {name: Measurement(tuple((time * noise).tolist()), run="one", agreed=True) for name, time in times.items()}
    return Comparison(rows, "eager")


NORMS = np.array([3.0, 0.01, 0.4, 20.0])
FIGURES = {
    "modes": lambda: training_figures.learning_curve({name: history(40) for name in ("eager", "jit", "donate")}),
    "one, long": lambda: training_figures.learning_curve({"donate": history(460)}),
    "one step": lambda: training_figures.learning_curve({"jit": History((2.3,), {1: 0.1})}),
    "seconds": lambda: training_figures.step_seconds(comparison()),
    "norms": lambda: training_figures.gradient_norms(NORMS, np.minimum(NORMS, 1), 1.0),
    "norms, zero": lambda: training_figures.gradient_norms([0.0], [0.0], 1.0),
    "staircase": lambda: training_figures.staircase(),
    "staircase, steps of 2": lambda: training_figures.staircase(2.0),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_a_curve_shows_each_loss_and_the_last_accuracy():
    runs = {"eager": history(40), "jit": history(40, seed=1)}
    above, below = training_figures.learning_curve(runs).axes
    for line, run in zip(above.lines, runs.values(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run.losses)
    assert below.texts[0].get_text() == "at the end: eager 95.3%, jit 95.3%"


def test_a_long_curve_is_smoothed():
    losses = history(460).losses
    raw, smooth = training_figures.learning_curve({"jit": history(460)}).axes[0].lines
    np.testing.assert_array_equal(raw.get_ydata(), losses)
    step, mean = smooth.get_xdata()[100], smooth.get_ydata()[100]
    np.testing.assert_allclose(mean, np.mean(losses[step - 12 : step + 11]))  # 23 steps centred at `step`


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


def test_the_staircase_has_steps_and_two_derivatives():
    near, far, slopes_near, slopes_far = training_figures.staircase(0.5).axes
    np.testing.assert_allclose(np.unique(near.lines[1].get_ydata()), np.arange(-3, 4) / 2, atol=1e-6)
    assert (far.lines[1].get_ydata().min(), far.lines[1].get_ydata().max()) == (-64, 63.5)
    for axes in (slopes_near, slopes_far):
        assert not np.any(axes.lines[0].get_ydata())
    assert np.all(slopes_near.lines[1].get_ydata() == 1)
    x, slopes = slopes_far.lines[1].get_data()
    np.testing.assert_array_equal(slopes, (x >= -64) & (x <= 63.5))


def test_invalid_data_are_rejected():
    with pytest.raises(XlaError, match="no runs"):
        training_figures.learning_curve({})
    with pytest.raises(XlaError, match="same examples"):
        training_figures.gradient_norms(NORMS, NORMS[:2], 1.0)
    with pytest.raises(XlaError, match="invalid scale"):
        training_figures.staircase(0.0)
