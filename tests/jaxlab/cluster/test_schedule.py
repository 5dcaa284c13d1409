"""Pipeline schedules: they are valid, with the bubble of the closed form and the stored activations of the papers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.patches import Rectangle

from mlhood.jaxlab.cluster.schedule import BACKWARD, FORWARD, dependencies, gpipe, one_forward_one_backward
from mlhood.jaxlab.cluster.schedule_figures import gantt
from tests.plotting.texts import check_texts, strings

BOTH = gpipe, one_forward_one_backward
sizes = st.integers(1, 6), st.integers(1, 10)


def slots_of(schedule, stage):
    return [slot for slot in schedule.slots if slot.stage == stage]


@given(*sizes)
def test_a_schedule_is_complete_runs_one_pass_at_a_time_and_after_what_it_needs(stages, microbatches):
    for make in BOTH:
        schedule = make(stages, microbatches)
        slots = {(slot.kind, slot.stage, slot.microbatch): slot for slot in schedule.slots}
        kinds = FORWARD, BACKWARD
        assert slots.keys() == {(kind, i, j) for kind in kinds for i in range(stages) for j in range(microbatches)}
        for stage in range(stages):
            assert all(before.end <= after.start for before, after in pairwise(slots_of(schedule, stage)))
        for task, slot in slots.items():
            assert all(slots[needed].end <= slot.start for needed in dependencies(task, stages))


@given(*sizes)
def test_the_bubble_is_that_of_the_closed_form(stages, microbatches):
    for make in BOTH:
        schedule = make(stages, microbatches)
        assert schedule.length == (microbatches + stages - 1) * 3
        assert schedule.bubble == pytest.approx((stages - 1) / (microbatches + stages - 1))


@given(*sizes)
def test_gpipe_stores_activations_of_all_microbatches_and_1f1b_of_those_in_flight(stages, microbatches):
    peaks = [[make(stages, microbatches).peak(stage) for stage in range(stages)] for make in BOTH]
    assert peaks == [[microbatches] * stages, [min(microbatches, stages - stage) for stage in range(stages)]]


def test_the_orders_are_those_of_the_papers():
    def order(schedule, stage):
        return " ".join(f"{'FB'[slot.kind == BACKWARD]}{slot.microbatch}" for slot in slots_of(schedule, stage))

    assert order(gpipe(2, 3), 0) == "F0 F1 F2 B2 B1 B0"
    assert order(one_forward_one_backward(3, 4), 0) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert order(one_forward_one_backward(3, 4), 2) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_a_figure_has_a_box_for_each_pass_and_shows_the_bubble():
    schedule = one_forward_one_backward(4, 8)
    figure = gantt([schedule, gpipe(4, 8)], "passes")
    check_texts(figure)
    texts = set(strings(figure))
    assert {"1F1B: 33.0 passes long, bubble 27.3%", "stage 0: at most 4", "stage 3: at most 1"} <= texts
    boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and not patch.get_fill()]
    assert len(boxes) == len(schedule.slots)
    assert {slot.start for slot in schedule.slots} == {patch.get_x() for patch in boxes}
    assert len([patch for patch in figure.axes[0].patches if patch.get_hatch() == "///"]) == 4 * 8
