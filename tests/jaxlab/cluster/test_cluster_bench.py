"""The benchmark of two processes: the kernel's byte counts against the ring's, and the table of steps."""

import socket
import sys

import pytest

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.bench import Step, _fit, measure, table
from mlhood.jaxlab.cluster.bench_program import PROBES
from tests.waiting import PATIENCE


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="clusters are for Linux and macOS")
def test_two_processes_send_what_the_ring_predicts():
    # the traffic of heartbeats grows with time, and a busy machine is slow: more steps make its share smaller
    (step,) = measure([2], rounds=21, timeout=PATIENCE)
    assert step.predicted_bytes == step.gradient > 500_000
    if sys.platform == "linux":
        assert abs(step.excess) < 0.2
    assert step.seconds > 0
    assert step.alone > 0


def test_a_predicted_step_is_computation_latency_and_transfer():
    step = Step(4, 0.5, 0.1, latency=0.01, bandwidth=1000.0, sent=180.0, gradient=100, arrays=5)
    assert step.predicted_bytes == 150
    assert step.predicted_seconds == pytest.approx(0.1 + 5 * 6 * 0.01 + 0.15)
    assert step.excess == pytest.approx(0.2)


def test_one_process_sends_nothing():
    step = Step(1, 0.5, 0.1, latency=0.0, bandwidth=float("inf"), sent=0.0, gradient=100, arrays=5)
    assert (step.predicted_bytes, step.predicted_seconds, step.excess) == (0, 0.1, None)


@pytest.mark.parametrize("processes", [2, 5])
def test_latency_and_bandwidth_are_fitted_to_two_sizes(processes):
    messages = 2 * (processes - 1)
    seconds = [messages * 0.002 + messages * size / processes / 1e9 for size in PROBES]
    assert _fit(processes, seconds) == pytest.approx((0.002, 1e9))


def test_the_table_shows_what_was_not_counted():
    steps = [Step(1, 0.5, 0.1, 0.0, float("inf"), None, 100, 5), Step(2, 0.5, 0.1, 0.001, 2e9, 110.0, 100, 5)]
    rows = table(steps)
    assert rows["bytes sent"].tolist() == ["not counted here", "110"]
    assert rows.loc[2, "more"] == "+10.00%"
    assert rows.loc[2, "bandwidth"] == "2.00 GB/s"


def test_zero_rounds_are_rejected():
    with pytest.raises(ClusterError, match="invalid number of rounds"):
        measure([1], rounds=0)
