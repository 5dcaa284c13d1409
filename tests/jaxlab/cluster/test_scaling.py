"""Predicted scaling: the formula against simulated messages, limits, and the figure."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.jaxlab.cluster.scaling import LINKS, Link, Ring, predict, step_seconds
from mlhood.jaxlab.cluster.scaling_figures import scaling
from tests.plotting.texts import check_texts, strings

LINK = Link("link", 1e9, 1e-5)


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
def test_a_ring_takes_the_time_of_its_messages(devices):
    """All-reduce [n, n parts] in a ring, message by message: all of a step at the same time."""
    values = np.random.default_rng(0).integers(0, 100, (devices, devices))
    results, seconds = values.copy(), 0.0
    for step in range(2 * (devices - 1)):
        parts = [(source - step) % devices for source in range(devices)]
        messages = [results[source, part] for source, part in enumerate(parts)]
        for source, part in enumerate(parts):
            target = (source + 1) % devices
            results[target, part] = messages[source] + (results[target, part] if step < devices - 1 else 0)
        seconds += LINK.latency + 4 / LINK.bandwidth
    assert (results == values.sum(axis=0)).all()
    assert seconds == pytest.approx(Ring(LINK).seconds(4 * devices, devices))


@given(st.floats(1e-4, 10), st.floats(0, 1e10), st.integers(1, 1024), st.floats(1e6, 1e12), st.floats(0, 1e-3))
def test_a_step_is_divided_computation_and_a_ring(compute, size, devices, bandwidth, latency):
    expected = compute / devices + 2 * (devices - 1) * latency + 2 * (devices - 1) / devices * size / bandwidth
    assert step_seconds(compute, size, devices, bandwidth, latency) == pytest.approx(expected)


@given(st.floats(1e-3, 10), st.floats(0, 1e9))
def test_efficiency_starts_at_one_and_decreases(compute, size):
    efficiencies = [step.efficiency for step in predict(compute, size, Ring(LINK)).steps]
    assert efficiencies[0] == 1
    assert efficiencies == sorted(efficiencies, reverse=True)


def test_an_efficiency_of_a_half_is_reached_where_computation_and_communication_take_equal_time():
    """That is where compute / n = 2 (n - 1) (a + B / (n b)): without latency at n = 1 + compute / (2 B / b) = 6.5."""
    steps = predict(1.1, 1e8, Ring(Link("no latency", 1e9, 0)), range(1, 200)).steps
    assert [step.devices for step in steps if step.efficiency >= 0.5] == [1, 2, 3, 4, 5, 6]
    assert steps[5].efficiency == pytest.approx(1.1 / (1.1 + 1.0))


def test_the_figure_states_its_link_and_marks_an_efficiency_of_a_half():
    predictions = [predict(0.5, 46.8e6, Ring(LINKS[name])) for name in ("10 GbE", "NVLink 4")]
    figure = scaling(predictions)
    check_texts(figure)
    note = next(text for text in strings(figure) if text.startswith("10 GbE"))
    assert "1.25 GB/s (IEEE 802.3ae)" in note
    assert "NCCL" in note
    times, efficiency = figure.axes[0], figure.axes[2]
    lines = {line.get_label(): line.get_ydata() for line in times.lines}
    steps = predictions[0].steps
    assert list(lines["step"]) == [step.seconds for step in steps]
    assert list(lines["communication"]) == [step.communication for step in steps[1:]]
    last = max(step.devices for step in steps if step.efficiency >= 0.5)
    assert f"at least 50 % up to\n{last} devices" in strings(figure)
    (diamond,) = [line for line in efficiency.lines if line.get_marker() == "D"]
    assert diamond.get_xdata() == [last]
