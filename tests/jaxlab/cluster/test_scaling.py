"""Predicted scaling: the formulas against messages sent one by one, limits, and what a picture must be told."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.scaling import (
    LINKS,
    POWERS,
    Doubling,
    HalvingDoubling,
    Hierarchical,
    Link,
    Ring,
    predict,
    ring_bytes,
    ring_seconds,
    step_seconds,
)
from mlhood.jaxlab.cluster.scaling_figures import scaling

LINK = Link("link", 1e9, 1e-5)
NETWORKS = [Ring(LINK), Doubling(LINK), HalvingDoubling(LINK), Hierarchical(LINK, LINK, 4)]


def ring(values, link):
    """Add up [n, n parts] in a ring, message by message; return what all have, what each sends, and the time."""
    have, n = values.astype(float), len(values)
    sent, seconds = np.zeros(n), 0.0
    for step in range(2 * (n - 1)):
        parts = [(device - step) % n for device in range(n)]
        moving = [have[device, part] for device, part in enumerate(parts)]
        for device, part in enumerate(parts):
            other = (device + 1) % n
            have[other, part] = have[other, part] + moving[device] if step < n - 1 else moving[device]
            sent[device] += 4
        seconds += link.latency + 4 / link.bandwidth
    return have, sent, seconds


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
def test_a_ring_sends_the_bytes_and_takes_the_time_of_the_formula(devices):
    values = np.random.default_rng(0).integers(0, 100, (devices, devices))
    have, sent, seconds = ring(values, LINK)
    assert (have == values.sum(axis=0)).all()
    assert sent == pytest.approx([ring_bytes(4 * devices, devices)] * devices)
    assert seconds == pytest.approx(ring_seconds(4 * devices, devices, LINK.bandwidth, LINK.latency))


def exchanged(devices, size, halving):
    """Follow a power of two's pairs: how many messages each device sends, and how many bytes."""
    messages = moved = 0
    distance, part = 1, size
    while distance < devices:
        part = part / 2 if halving else part
        messages, moved = messages + 1, moved + part
        distance *= 2
    return (2 * messages, 2 * moved) if halving else (messages, moved)


@pytest.mark.parametrize("devices", [1, 2, 4, 64, 1024])
@pytest.mark.parametrize(("network", "halving"), [(Doubling(LINK), False), (HalvingDoubling(LINK), True)])
def test_pairs_take_the_time_of_their_messages(network, halving, devices):
    messages, moved = exchanged(devices, 4096, halving)
    assert network.seconds(4096, devices) == pytest.approx(messages * LINK.latency + moved / LINK.bandwidth)


@pytest.mark.parametrize("network", [Doubling(LINK), HalvingDoubling(LINK)])
def test_a_device_beyond_a_power_of_two_costs_a_message_before_and_one_after(network):
    extra = 2 * (LINK.latency + 1000 / LINK.bandwidth)
    for devices, power in ((3, 2), (5, 4), (7, 4), (1000, 512)):
        assert network.seconds(1000, devices) == pytest.approx(network.seconds(1000, power) + extra)


def test_few_bytes_want_few_messages_and_many_bytes_a_ring():
    slow = {type(network): network.seconds(1e9, 64) for network in NETWORKS}
    quick = {type(network): network.seconds(100, 64) for network in NETWORKS}
    assert quick[Doubling] < quick[HalvingDoubling] < quick[Ring]
    assert slow[HalvingDoubling] < slow[Ring] < slow[Doubling]


def test_a_hierarchy_spares_the_slow_link():
    fast, slow = LINKS["NVLink 4"], LINKS["10 GbE"]
    nodes = Hierarchical(fast, slow, 8)
    assert nodes.seconds(1e8, 8) == Ring(fast).seconds(1e8, 8)
    assert nodes.seconds(1e8, 64) == pytest.approx(Ring(fast).seconds(1e8, 8) + Ring(slow).seconds(1e8, 8))
    assert nodes.seconds(1e8, 64) < Ring(slow).seconds(1e8, 64)


@settings(deadline=None)
@given(
    st.floats(1e-4, 10), st.floats(0, 1e10), st.integers(1, 1024), st.floats(1e6, 1e12), st.floats(0, 1e-3)
)  # fmt: skip
def test_a_step_is_computation_shared_out_and_a_ring(compute, size, devices, bandwidth, latency):
    wanted = compute / devices + 2 * (devices - 1) * latency + 2 * (devices - 1) / devices * size / bandwidth
    assert step_seconds(compute, size, devices, bandwidth, latency) == pytest.approx(wanted)


@settings(deadline=None)
@given(st.sampled_from(NETWORKS), st.floats(1e-3, 10), st.floats(0, 1e9), st.sampled_from(["strong", "weak"]))
def test_efficiency_falls_and_overlap_never_hurts(network, compute, size, mode):
    apart, beside = (predict(compute, size, network, mode=mode, overlap=overlap).steps for overlap in (0, 0.6))
    shares = [step.efficiency for step in apart]
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    for one, other in zip(apart, beside, strict=True):
        assert one.seconds - 0.6 * one.compute <= other.seconds * (1 + 1e-12)
        assert other.seconds <= one.seconds
        assert other.seconds >= max(one.compute, one.communication)


def test_weak_scaling_keeps_the_work_of_a_device():
    weak, strong = (predict(0.5, 4e7, Ring(LINK), mode=mode) for mode in ("weak", "strong"))
    assert {step.compute for step in weak.steps} == {0.5}
    assert [step.compute * step.devices for step in strong.steps] == [0.5] * len(POWERS)
    assert weak.devices_at(0.5) == 1024
    assert strong.devices_at(0.5) < 16


def test_the_number_of_devices_at_an_efficiency_is_where_both_parts_are_equal():
    """Half of the time is communication where compute / n = 2 (n - 1) (a + B / (n b)): without latency at n = 1 + c."""
    link = Link("no latency", 1e9, 0)
    found = predict(1.1, 1e8, Ring(link), range(1, 200))
    assert found.devices_at(0.5) == 1 + math.floor(1.1 / (2 * 1e8 / 1e9)) == 6
    assert found.table().loc[6, "efficiency"] == pytest.approx(1.1 / (1.1 + 1.0))
    assert found.devices_at(1) == 1


def test_a_prediction_tells_all_that_it_rests_on():
    network = Hierarchical(LINKS["NVLink 4"], LINKS["100 GbE"], 8)
    told = "\n".join(predict(0.5, 46.8e6, network, mode="weak", overlap=0.5).assumptions)
    for part in ("weak", "500 ms", "46.8 MB", "nodes of 8", "50%", "450 GB/s", "12.5 GB/s", "IEEE 802.3ba", "NCCL"):
        assert part in told


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: Link("bad", 0, 0), "bandwidth"),
        (lambda: Link("bad", 1, -1), "latency"),
        (lambda: step_seconds(0, 1, 2, 1, 1), "computation"),
        (lambda: step_seconds(1, -1, 2, 1, 1), "bytes"),
        (lambda: step_seconds(1, 1, 0, 1, 1), "devices"),
        (lambda: ring_bytes(1, 1.5), "devices"),
        (lambda: ring_seconds(1, 2, 0, 0), "bandwidth"),
        (lambda: Doubling(LINK).seconds(1, 0), "devices"),
        (lambda: Hierarchical(LINK, LINK, 0), "devices"),
        (lambda: Hierarchical(LINK, LINK, 8).seconds(1, 12), "fill nodes"),
        (lambda: predict(1, 1, Ring(LINK), []), "nothing to predict"),
        (lambda: predict(1, 1, Ring(LINK), mode="both"), "no such scaling"),
        (lambda: predict(1, 1, Ring(LINK), overlap=1.1), "overlap"),
        (lambda: predict(1, 1e9, Ring(LINK), [64]).devices_at(0.9), "used that well"),
        (lambda: predict(1, 1, Ring(LINK)).devices_at(1.5), "efficiency"),
        (lambda: scaling([]), "cannot be drawn"),
        (lambda: scaling(predict(1, 1, Ring(LINK)), ["a", "b"]), "cannot be drawn"),
    ],
)
def test_what_has_no_meaning_is_refused(call, what):
    with pytest.raises(ClusterError) as caught:
        call()
    assert what in str(caught.value)
