"""Pipeline schedules: they are valid, with the bubble of the closed form and the stored activations of the papers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.schedule import (
    BACKWARD,
    FORWARD,
    from_orders,
    gpipe,
    interleaved,
    one_forward_one_backward,
)
from mlhood.jaxlab.cluster.schedule_figures import gantt

BOTH = gpipe, one_forward_one_backward
sizes = st.integers(1, 6), st.integers(1, 10)
seconds = st.integers(1, 9)


@given(*sizes, seconds, seconds)
def test_equal_stages_have_the_bubble_of_the_closed_form(stages, microbatches, forward, backward):
    for make in BOTH:
        schedule = make(stages, microbatches, forward, backward)
        schedule.verify()
        assert schedule.seconds == (microbatches + stages - 1) * (forward + backward)
        assert schedule.bubble == pytest.approx((stages - 1) / (microbatches + stages - 1))


@given(*sizes)
def test_gpipe_stores_activations_of_all_microbatches_and_1f1b_of_those_in_flight(stages, microbatches):
    peaks = [[make(stages, microbatches).peak(stage) for stage in range(stages)] for make in BOTH]
    assert peaks == [[microbatches] * stages, [min(microbatches, stages - stage) for stage in range(stages)]]


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), seconds, seconds)
def test_interleaving_divides_the_bubble_by_the_stages_of_a_device(devices, groups, chunks, forward, backward):
    schedule = interleaved(devices, groups * devices, chunks, forward, backward)
    schedule.verify()
    assert schedule.bubble == pytest.approx((devices - 1) / (chunks * groups * devices + devices - 1))
    busy = sum(slot.seconds for slot in schedule.device_slots(0))
    assert busy == pytest.approx(groups * devices * (forward + backward))


@given(st.data(), *sizes, st.integers(0, 4))
def test_schedules_of_unequal_stages_are_valid_and_respect_lower_bounds(data, stages, microbatches, communication):
    times = [data.draw(st.lists(seconds, min_size=stages, max_size=stages)) for _ in range(2)]
    for make in BOTH:
        schedule = make(stages, microbatches, *times, communication)
        schedule.verify()
        one_microbatch = sum(map(sum, times)) + 2 * (stages - 1) * communication
        slowest_stage = microbatches * max(map(sum, zip(*times, strict=True)))
        assert schedule.seconds >= max(one_microbatch, slowest_stage)
        assert 0 <= schedule.bubble < 1


def test_the_orders_are_those_of_the_papers():
    def order(schedule, device):
        return " ".join(f"{'FB'[slot.kind == BACKWARD]}{slot.microbatch}" for slot in schedule.device_slots(device))

    assert order(gpipe(2, 3), 0) == "F0 F1 F2 B2 B1 B0"
    assert order(one_forward_one_backward(3, 4), 0) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert order(one_forward_one_backward(3, 4), 2) == "F0 B0 F1 B1 F2 B2 F3 B3"
    # Narayanan et al. 2021, figure 4, bottom: both chunks of four microbatches before the next four
    forwards = [slot for slot in interleaved(4, 8).device_slots(0) if slot.kind == FORWARD]
    expected = [(stage, microbatch) for stage in (0, 4) for microbatch in range(4)]
    assert [(slot.stage, slot.microbatch) for slot in forwards[:9]] == [*expected, (0, 4)]


def test_an_interleaved_device_has_as_many_warm_up_passes_as_in_megatron_lm():
    schedule = interleaved(4, 8, 2)
    kinds = [[slot.kind for slot in schedule.device_slots(device)] for device in range(4)]
    # 2 (p - s - 1) + (v - 1) p before the first pair of a forward and a backward pass
    assert [sequence.index(BACKWARD) - 1 for sequence in kinds] == [10, 8, 6, 4]
    assert [schedule.peak(device) for device in range(4)] == [11, 9, 7, 5]


def test_the_slowest_stage_determines_the_throughput():
    even, slow = (one_forward_one_backward(4, 100, [1, 1, third, 1], [2, 2, 2 * third, 2]) for third in (1, 2))
    assert slow.seconds / even.seconds == pytest.approx(2, rel=0.05)


def test_communication_delays_1f1b_more_than_gpipe():
    """GPipe pays for it once in each direction; 1F1B's first stage waits for every microbatch's backward pass."""
    assert gpipe(4, 8, communication=0.5).seconds == gpipe(4, 8).seconds + 2 * 3 * 0.5
    assert one_forward_one_backward(4, 8, communication=0.5).seconds > gpipe(4, 8, communication=0.5).seconds


def modified(schedule, change):
    return replace(schedule, slots=tuple(map(change, schedule.slots)))


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (lambda slot: replace(slot, start=slot.start / 2, end=slot.start / 2 + slot.seconds), "begin"),
        (lambda slot: replace(slot, end=slot.end + 1), "takes"),
        (lambda slot: replace(slot, start=slot.start - 1, end=slot.end - 1), "from 0 on"),
        (lambda slot: replace(slot, microbatch=0), "not every stage"),
        (lambda slot: replace(slot, start=4.0 * slot.microbatch, end=4.0 * slot.microbatch + slot.seconds), "begins"),
    ],
)
def test_the_verifier_finds_violations(change, violation):
    with pytest.raises(ClusterError, match="invalid schedule") as caught:
        modified(gpipe(3, 4), change).verify()
    assert violation in str(caught.value)


def test_the_verifier_distinguishes_overlaps_from_missing_dependencies():
    schedule = gpipe(2, 2, communication=1)
    early = modified(schedule, lambda slot: replace(slot, start=slot.start - slot.stage, end=slot.end - slot.stage))
    assert all("before it has the result" in violation for violation in early.violations())
    assert early.violations()
    late = modified(schedule, lambda slot: replace(slot, start=9.0 * slot.stage, end=9.0 * slot.stage + slot.seconds))
    assert any("begins on device 0 before" in violation for violation in late.violations())


def test_a_deadlock_is_rejected():
    backward_first = [(BACKWARD, 0, 0), (FORWARD, 0, 0)]
    with pytest.raises(ClusterError, match="deadlock") as caught:
        from_orders("mine", [backward_first, [(FORWARD, 1, 0), (BACKWARD, 1, 0)]])
    assert "backward of microbatch 0 in stage 0 never runs" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gpipe(0, 4), "number of stages"),
        (lambda: gpipe(4, 2.5), "number of microbatches"),
        (lambda: interleaved(2, 4, 0), "number of chunks"),
        (lambda: interleaved(4, 6), "multiple of 4"),
        (lambda: gpipe(2, 2, [1]), "forward pass"),
        (lambda: gpipe(2, 2, backward=0), "backward pass"),
        (lambda: gpipe(2, 2, communication=-1), "communication"),
        (lambda: gpipe(1000, 1000), "too long"),
        (lambda: from_orders("mine", []), "is empty"),
        (lambda: from_orders("mine", [[(FORWARD, 0, 0)]]), "orders are incomplete"),
        (lambda: gantt([]), "nothing to draw"),
        (lambda: gantt(gpipe(17, 2)), "too large"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ClusterError) as caught:
        call()
    assert message in str(caught.value)
