"""The benchmark of two processes: bytes as the kernel counts them beside the ring's, and what is told of a step."""

import socket
import sys

import pytest

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.bench import Step, _fit, measure, table
from mlhood.jaxlab.cluster.bench_program import PROBES


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="clusters are for Linux and macOS")
def test_two_processes_send_what_the_ring_predicts():
    # over more steps, what the processes say to stay in touch weighs less: a busy machine gives it more time
    (step,) = measure([2], rounds=21, timeout=120)
    assert step.predicted_bytes == step.gradient > 500_000
    if sys.platform == "linux":
        assert abs(step.excess) < 0.2
    assert step.seconds > 0
    assert step.alone > 0


def test_a_step_is_the_work_the_waits_and_the_transfer():
    step = Step(4, 0.5, 0.1, latency=0.01, bandwidth=1000.0, sent=180.0, gradient=100, arrays=5)
    assert step.predicted_bytes == 150
    assert step.predicted_seconds == pytest.approx(0.1 + 5 * 6 * 0.01 + 0.15)
    assert step.excess == pytest.approx(0.2)


def test_one_process_sends_nothing():
    step = Step(1, 0.5, 0.1, latency=0.0, bandwidth=float("inf"), sent=0.0, gradient=100, arrays=5)
    assert (step.predicted_bytes, step.predicted_seconds, step.excess) == (0, 0.1, None)


@pytest.mark.parametrize("processes", [2, 5])
def test_latency_and_bandwidth_come_from_two_sizes(processes):
    share = 2 * (processes - 1)
    seconds = [share * 0.002 + share * size / processes / 1e9 for size in PROBES]
    assert _fit(processes, seconds) == pytest.approx((0.002, 1e9))


def test_the_table_says_what_was_not_counted():
    steps = [Step(1, 0.5, 0.1, 0.0, float("inf"), None, 100, 5), Step(2, 0.5, 0.1, 0.001, 2e9, 110.0, 100, 5)]
    rows = table(steps)
    assert rows["bytes sent"].tolist() == ["not counted here", "110"]
    assert rows.loc[2, "more"] == "+10.00%"
    assert rows.loc[2, "bandwidth"] == "2.00 GB/s"


def test_no_rounds_measure_nothing():
    with pytest.raises(ClusterError, match="nothing to measure"):
        measure([1], rounds=0)
