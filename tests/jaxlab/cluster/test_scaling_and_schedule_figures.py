"""Figures of schedules and of scaling: they show the data, and their labels do not overlap."""

import pytest
from matplotlib.patches import Rectangle

from mlhood.jaxlab.cluster.scaling import LINKS, HalvingDoubling, Hierarchical, Link, Ring, predict
from mlhood.jaxlab.cluster.scaling_figures import scaling
from mlhood.jaxlab.cluster.schedule import gpipe, interleaved, one_forward_one_backward
from mlhood.jaxlab.cluster.schedule_figures import gantt
from tests.plotting.texts import check_texts, strings

ETHERNET, NVLINK = LINKS["10 GbE"], LINKS["NVLink 4"]
RING = predict(0.5, 46.8e6, Ring(ETHERNET))
OTHERS = [
    predict(0.5, 46.8e6, HalvingDoubling(ETHERNET), mode="weak", overlap=2 / 3),
    predict(0.5, 46.8e6, Hierarchical(NVLINK, ETHERNET)),
    predict(3e-6, 46.8e6, Ring(Link("loopback", 3e9, 5e-5, "measured", "measured")), [2, 3, 4]),
]
FIGURES = {
    "scaling": lambda: scaling(RING),
    "scaling, four": lambda: scaling([RING, *OTHERS]),
    "scaling, titles": lambda: scaling([RING, OTHERS[0]], ["a title that is far too long for one line of it", "b"]),
    "scaling, one device": lambda: scaling(predict(0.5, 46.8e6, Ring(ETHERNET), [1])),
    "schedule": lambda: gantt(gpipe(4, 8)),
    "three schedules": lambda: gantt([gpipe(4, 8), one_forward_one_backward(4, 8), interleaved(4, 8)], "passes"),
    "schedule, one stage": lambda: gantt(gpipe(1, 1, 1e-3, 2e-3)),
    "schedule, long": lambda: gantt(one_forward_one_backward(8, 40, communication=0.2)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_a_schedule_has_a_box_for_each_pass_and_shows_the_bubble():
    schedule = one_forward_one_backward(4, 8)
    figure = gantt(schedule)
    texts = set(strings(figure))
    assert {"1F1B: 33.0 s long, bubble 27.3%", "first: at most 4", "last: at most 1"} <= texts
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert len(boxes) == len(schedule.slots)
    assert {slot.start for slot in schedule.slots} == {patch.get_x() for patch in boxes}
    assert len([patch for patch in figure.axes[0].patches if patch.get_hatch() == "///"]) == 4 * 8


def test_scaling_states_its_assumptions_and_marks_an_efficiency_of_a_half():
    figure = scaling([RING, OTHERS[1]])
    texts = strings(figure)
    (note,) = [text for text in texts if "all-reduce: ring;" in text]
    assert "predicted, not measured" in note
    assert "1.25 GB/s (IEEE 802.3ae)" in note
    times, efficiency = figure.axes[0], figure.axes[2]
    lines = {line.get_label(): line.get_ydata() for line in times.lines}
    assert list(lines["step"]) == [step.seconds for step in RING.steps]
    assert list(lines["communication"]) == [step.communication for step in RING.steps[1:]]
    assert f"half or more up to {RING.devices_at(0.5)} devices" in texts
    (diamond,) = [line for line in efficiency.lines if line.get_marker() == "D"]
    assert diamond.get_xdata() == [RING.devices_at(0.5)]
