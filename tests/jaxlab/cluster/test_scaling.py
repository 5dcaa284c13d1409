"""Predicted scaling: the formulas against simulated messages, limits, and the stated assumptions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.scaling import (
    LINKS,
    POWERS,
    HalvingDoubling,
    Hierarchical,
    Link,
    RecursiveDoubling,
    Ring,
    predict,
    ring_bytes,
    ring_seconds,
    step_seconds,
)
from mlhood.jaxlab.cluster.scaling_figures import scaling

LINK = Link("link", 1e9, 1e-5)
NETWORKS = [Ring(LINK), RecursiveDoubling(LINK), HalvingDoubling(LINK), Hierarchical(LINK, LINK, 4)]


def simulate_ring(values, link):
    """All-reduce [n, n parts] in a ring, message by message; return the results, each device's bytes, and the time."""
    results, n = values.astype(float), len(values)
    sent, seconds = np.zeros(n), 0.0
    for step in range(2 * (n - 1)):
        parts = [(source - step) % n for source in range(n)]
        messages = [results[source, part] for source, part in enumerate(parts)]
        for source, part in enumerate(parts):
            target = (source + 1) % n
            results[target, part] = results[target, part] + messages[source] if step < n - 1 else messages[source]
            sent[source] += 4
        seconds += link.latency + 4 / link.bandwidth
    return results, sent, seconds


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
def test_a_ring_sends_the_bytes_and_takes_the_time_of_the_formula(devices):
    values = np.random.default_rng(0).integers(0, 100, (devices, devices))
    results, sent, seconds = simulate_ring(values, LINK)
    assert (results == values.sum(axis=0)).all()
    assert sent == pytest.approx([ring_bytes(4 * devices, devices)] * devices)
    assert seconds == pytest.approx(ring_seconds(4 * devices, devices, LINK.bandwidth, LINK.latency))


def simulate_pairs(devices, size, halving):
    """Return how many messages and bytes each of a power of two devices sends."""
    messages = sent = 0
    distance, part = 1, size
    while distance < devices:
        part = part / 2 if halving else part
        messages, sent = messages + 1, sent + part
        distance *= 2
    return (2 * messages, 2 * sent) if halving else (messages, sent)


@pytest.mark.parametrize("devices", [1, 2, 4, 64, 1024])
@pytest.mark.parametrize(("network", "halving"), [(RecursiveDoubling(LINK), False), (HalvingDoubling(LINK), True)])
def test_pairs_take_the_time_of_their_messages(network, halving, devices):
    messages, sent = simulate_pairs(devices, 4096, halving)
    assert network.seconds(4096, devices) == pytest.approx(messages * LINK.latency + sent / LINK.bandwidth)


@pytest.mark.parametrize("network", [RecursiveDoubling(LINK), HalvingDoubling(LINK)])
def test_devices_in_excess_of_a_power_of_two_cost_a_message_before_and_one_after(network):
    extra = 2 * (LINK.latency + 1000 / LINK.bandwidth)
    for devices, power in ((3, 2), (5, 4), (7, 4), (1000, 512)):
        assert network.seconds(1000, devices) == pytest.approx(network.seconds(1000, power) + extra)


def test_few_bytes_need_few_messages_and_many_bytes_a_ring():
    large = {type(network): network.seconds(1e9, 64) for network in NETWORKS}
    small = {type(network): network.seconds(100, 64) for network in NETWORKS}
    assert small[RecursiveDoubling] < small[HalvingDoubling] < small[Ring]
    assert large[HalvingDoubling] < large[Ring] < large[RecursiveDoubling]


def test_a_hierarchy_sends_less_over_the_slow_link():
    fast, slow = LINKS["NVLink 4"], LINKS["10 GbE"]
    nodes = Hierarchical(fast, slow, 8)
    assert nodes.seconds(1e8, 8) == Ring(fast).seconds(1e8, 8)
    assert nodes.seconds(1e8, 64) == pytest.approx(Ring(fast).seconds(1e8, 8) + Ring(slow).seconds(1e8, 8))
    assert nodes.seconds(1e8, 64) < Ring(slow).seconds(1e8, 64)


@given(st.floats(1e-4, 10), st.floats(0, 1e10), st.integers(1, 1024), st.floats(1e6, 1e12), st.floats(0, 1e-3))
def test_a_step_is_divided_computation_and_a_ring(compute, size, devices, bandwidth, latency):
    expected = compute / devices + 2 * (devices - 1) * latency + 2 * (devices - 1) / devices * size / bandwidth
    assert step_seconds(compute, size, devices, bandwidth, latency) == pytest.approx(expected)


@given(st.sampled_from(NETWORKS), st.floats(1e-3, 10), st.floats(0, 1e9), st.sampled_from(["strong", "weak"]))
def test_efficiency_decreases_and_overlap_never_hurts(network, compute, size, mode):
    sequential, overlapped = (predict(compute, size, network, mode=mode, overlap=share).steps for share in (0, 0.6))
    efficiencies = [step.efficiency for step in sequential]
    assert efficiencies[0] == 1
    assert efficiencies == sorted(efficiencies, reverse=True)
    for without, step in zip(sequential, overlapped, strict=True):
        assert without.seconds - 0.6 * without.compute <= step.seconds * (1 + 1e-12)
        assert step.seconds <= without.seconds
        assert step.seconds >= max(without.compute, without.communication)


def test_weak_scaling_keeps_the_computation_of_a_device_constant():
    weak, strong = (predict(0.5, 4e7, Ring(LINK), mode=mode) for mode in ("weak", "strong"))
    assert {step.compute for step in weak.steps} == {0.5}
    assert [step.compute * step.devices for step in strong.steps] == [0.5] * len(POWERS)
    assert weak.devices_at(0.5) == 1024
    assert strong.devices_at(0.5) < 16


def test_an_efficiency_of_a_half_is_reached_where_computation_and_communication_take_equal_time():
    """That is where compute / n = 2 (n - 1) (a + B / (n b)): without latency at n = 1 + compute / (2 B / b)."""
    link = Link("no latency", 1e9, 0)
    prediction = predict(1.1, 1e8, Ring(link), range(1, 200))
    assert prediction.devices_at(0.5) == 1 + math.floor(1.1 / (2 * 1e8 / 1e9)) == 6
    assert prediction.table().loc[6, "efficiency"] == pytest.approx(1.1 / (1.1 + 1.0))
    assert prediction.devices_at(1) == 1


def test_a_prediction_states_all_assumptions():
    network = Hierarchical(LINKS["NVLink 4"], LINKS["100 GbE"], 8)
    text = "\n".join(predict(0.5, 46.8e6, network, mode="weak", overlap=0.5).assumptions)
    for part in ("weak", "500 ms", "46.8 MB", "nodes of 8", "50%", "450 GB/s", "12.5 GB/s", "IEEE 802.3ba", "NCCL"):
        assert part in text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Link("bad", 0, 0), "bandwidth"),
        (lambda: Link("bad", 1, -1), "latency"),
        (lambda: step_seconds(0, 1, 2, 1, 1), "computation"),
        (lambda: step_seconds(1, -1, 2, 1, 1), "bytes"),
        (lambda: step_seconds(1, 1, 0, 1, 1), "devices"),
        (lambda: ring_bytes(1, 1.5), "devices"),
        (lambda: ring_seconds(1, 2, 0, 0), "bandwidth"),
        (lambda: RecursiveDoubling(LINK).seconds(1, 0), "devices"),
        (lambda: Hierarchical(LINK, LINK, 0), "devices"),
        (lambda: Hierarchical(LINK, LINK, 8).seconds(1, 12), "fill nodes"),
        (lambda: predict(1, 1, Ring(LINK), []), "nothing to predict"),
        (lambda: predict(1, 1, Ring(LINK), mode="both"), "unknown kind of scaling"),
        (lambda: predict(1, 1, Ring(LINK), overlap=1.1), "overlap"),
        (lambda: predict(1, 1e9, Ring(LINK), [64]).devices_at(0.9), "reaches this efficiency"),
        (lambda: predict(1, 1, Ring(LINK)).devices_at(1.5), "efficiency"),
        (lambda: scaling([]), "invalid number of predictions or titles"),
        (lambda: scaling(predict(1, 1, Ring(LINK)), ["a", "b"]), "invalid number of predictions or titles"),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ClusterError) as caught:
        call()
    assert message in str(caught.value)
