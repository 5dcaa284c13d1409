"""Schedules of pipelines: valid, as long as the closed form says, and no more held than the papers say."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.schedule import (
    BACKWARD,
    FORWARD,
    gpipe,
    ideal_bubble,
    in_order,
    interleaved,
    one_forward_one_backward,
)
from mlhood.jaxlab.cluster.schedule_figures import gantt

BOTH = gpipe, one_forward_one_backward
sizes = st.integers(1, 6), st.integers(1, 10)
seconds = st.integers(1, 9)


@settings(deadline=None)
@given(*sizes, seconds, seconds)
def test_equal_stages_have_the_bubble_of_the_closed_form(stages, microbatches, forward, backward):
    for make in BOTH:
        schedule = make(stages, microbatches, forward, backward)
        schedule.verify()
        assert schedule.seconds == (microbatches + stages - 1) * (forward + backward)
        assert schedule.bubble == pytest.approx((stages - 1) / (microbatches + stages - 1))
        assert schedule.bubble == pytest.approx(ideal_bubble(stages, microbatches))


@settings(deadline=None)
@given(*sizes)
def test_gpipe_holds_the_whole_batch_and_1f1b_what_is_on_its_way(stages, microbatches):
    held = [[make(stages, microbatches).peak(stage) for stage in range(stages)] for make in BOTH]
    assert held == [[microbatches] * stages, [min(microbatches, stages - stage) for stage in range(stages)]]


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), seconds, seconds)
def test_interleaving_divides_the_bubble_by_the_stages_of_a_device(devices, groups, chunks, forward, backward):
    schedule = interleaved(devices, groups * devices, chunks, forward, backward)
    schedule.verify()
    assert schedule.bubble == pytest.approx(ideal_bubble(devices, groups * devices, chunks))
    assert sum(slot.seconds for slot in schedule.of_device(0)) == pytest.approx(groups * devices * (forward + backward))


@settings(deadline=None)
@given(st.data(), *sizes, st.integers(0, 4))
def test_schedules_of_unequal_stages_are_valid_and_no_shorter_than_their_parts(data, stages, microbatches, between):
    times = [data.draw(st.lists(seconds, min_size=stages, max_size=stages)) for _ in range(2)]
    for make in BOTH:
        schedule = make(stages, microbatches, *times, between)
        schedule.verify()
        through = sum(map(sum, times)) + 2 * (stages - 1) * between
        slowest = microbatches * max(map(sum, zip(*times, strict=True)))
        assert schedule.seconds >= max(through, slowest)
        assert 0 <= schedule.bubble < 1


def test_the_orders_are_those_of_the_papers():
    def order(schedule, device):
        return " ".join(f"{'FB'[slot.kind == BACKWARD]}{slot.microbatch}" for slot in schedule.of_device(device))

    assert order(gpipe(2, 3), 0) == "F0 F1 F2 B2 B1 B0"
    assert order(one_forward_one_backward(3, 4), 0) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert order(one_forward_one_backward(3, 4), 2) == "F0 B0 F1 B1 F2 B2 F3 B3"
    # Narayanan et al. 2021, figure 4, below: both chunks of four microbatches before the next four
    forwards = [slot for slot in interleaved(4, 8).of_device(0) if slot.kind == FORWARD]
    assert [(slot.stage, slot.microbatch) for slot in forwards[:9]] == [
        *((0, microbatch) for microbatch in range(4)), *((4, microbatch) for microbatch in range(4)), (0, 4)
    ]  # fmt: skip


def test_an_interleaved_device_begins_with_as_many_forward_passes_as_megatron_lm():
    schedule = interleaved(4, 8, 2)
    kinds = [[slot.kind for slot in schedule.of_device(device)] for device in range(4)]
    # 2 (p - s - 1) + (v - 1) p before the first pair of a forward and a backward pass
    assert [own.index(BACKWARD) - 1 for own in kinds] == [10, 8, 6, 4]
    assert [schedule.peak(device) for device in range(4)] == [11, 9, 7, 5]


def test_the_slowest_stage_sets_the_pace():
    even, slow = (one_forward_one_backward(4, 100, [1, 1, middle, 1], [2, 2, 2 * middle, 2]) for middle in (1, 2))
    assert slow.seconds / even.seconds == pytest.approx(2, rel=0.05)


def test_devices_wait_longer_for_each_other_where_forward_and_backward_take_turns():
    """GPipe pays for communication once down and once up; 1F1B's first stage waits for each microbatch's way back."""
    assert gpipe(4, 8, communication=0.5).seconds == gpipe(4, 8).seconds + 2 * 3 * 0.5
    assert one_forward_one_backward(4, 8, communication=0.5).seconds > gpipe(4, 8, communication=0.5).seconds


def moved(schedule, change):
    return replace(schedule, slots=tuple(map(change, schedule.slots)))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda slot: replace(slot, start=slot.start / 2, end=slot.start / 2 + slot.seconds), "begin"),
        (lambda slot: replace(slot, end=slot.end + 1), "takes"),
        (lambda slot: replace(slot, start=slot.start - 1, end=slot.end - 1), "from 0 on"),
        (lambda slot: replace(slot, microbatch=0), "not every stage"),
        (lambda slot: replace(slot, start=4.0 * slot.microbatch, end=4.0 * slot.microbatch + slot.seconds), "begins"),
    ],
)
def test_the_verifier_finds_what_cannot_run(change, fault):
    with pytest.raises(ClusterError, match="cannot run") as caught:
        moved(gpipe(3, 4), change).verify()
    assert fault in str(caught.value)


def test_the_verifier_tells_overlaps_from_missing_data():
    schedule = gpipe(2, 2, communication=1)
    early = moved(schedule, lambda slot: replace(slot, start=slot.start - slot.stage, end=slot.end - slot.stage))
    assert all("before it has what" in fault for fault in early.faults())
    assert early.faults()
    late = moved(schedule, lambda slot: replace(slot, start=9.0 * slot.stage, end=9.0 * slot.stage + slot.seconds))
    assert any("begins on device 0 before" in fault for fault in late.faults())


def test_an_order_that_waits_in_a_circle_is_refused():
    backward_first = [(BACKWARD, 0, 0), (FORWARD, 0, 0)]
    with pytest.raises(ClusterError, match="in a circle") as caught:
        in_order("mine", [backward_first, [(FORWARD, 1, 0), (BACKWARD, 1, 0)]])
    assert "backward of microbatch 0 in stage 0 never runs" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: gpipe(0, 4), "number of stages"),
        (lambda: gpipe(4, 2.5), "number of microbatches"),
        (lambda: interleaved(2, 4, 0), "number of chunks"),
        (lambda: interleaved(4, 6), "multiple of 4"),
        (lambda: gpipe(2, 2, [1]), "forward pass"),
        (lambda: gpipe(2, 2, backward=0), "backward pass"),
        (lambda: gpipe(2, 2, communication=-1), "communication"),
        (lambda: gpipe(1000, 1000), "too long"),
        (lambda: in_order("mine", []), "something to do"),
        (lambda: in_order("mine", [[(FORWARD, 0, 0)]]), "no schedule"),
        (lambda: gantt([]), "nothing to draw"),
        (lambda: gantt(gpipe(17, 2)), "too large"),
    ],
)
def test_what_has_no_meaning_is_refused(call, what):
    with pytest.raises(ClusterError) as caught:
        call()
    assert what in str(caught.value)
