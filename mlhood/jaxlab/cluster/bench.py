"""A step of training on one process and on several: its time and the bytes sent, measured and predicted.

The processes share one machine, usually its cores too, and communicate through the loopback interface. The bytes are
those that a cluster's network would carry, but the times are not a cluster's: more processes than cores make every step
longer, and no speed-up can be read from them. They show what an all-reduce adds to a step.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.bench_program import PROBES
from mlhood.jaxlab.cluster.collectives import ring_bytes
from mlhood.jaxlab.cluster.launch import launch
from mlhood.measure.units import duration, rate


@dataclass(frozen=True)
class Step:
    """A training step on several processes, each with one thread and a batch of its own (weak scaling).

    Args:
        processes: Number of processes.
        seconds: Median time of a step, with the all-reduce of the gradient.
        alone: Median time of a step without it, run in every process at the same time.
        latency: Seconds of one step of the ring, fitted to all-reduces of two sizes.
        bandwidth: Bytes per second of the ring, from the same fit.
        sent: Bytes that a process sends per step, counted by the kernel; None where it does not count.
        gradient: Bytes of the gradient and the loss.
        arrays: Number of arrays that they consist of; on a CPU they are all-reduced one after the other.
    """

    processes: int
    seconds: float
    alone: float
    latency: float
    bandwidth: float
    sent: float | None
    gradient: int
    arrays: int

    @property
    def predicted_bytes(self) -> float:
        """Bytes that a process sends in a ring all-reduce."""
        return ring_bytes("all-reduce", self.gradient, self.processes)

    @property
    def predicted_seconds(self) -> float:
        """The step without all-reduce, plus the ring's 2 (n - 1) latencies for each array, plus the transfer."""
        latency = self.arrays * 2 * (self.processes - 1) * self.latency
        return self.alone + latency + self.predicted_bytes / self.bandwidth

    @property
    def excess(self) -> float | None:
        """Bytes sent beyond the prediction, as a fraction; None if nothing was to be sent or nothing was counted."""
        return self.sent / self.predicted_bytes - 1 if self.sent is not None and self.predicted_bytes else None

    def row(self) -> dict[str, object]:
        """Return the step as a row of `table`."""
        several = self.processes > 1
        return {
            "processes": self.processes,
            "step": duration(self.seconds),
            "step predicted": duration(self.predicted_seconds),
            "without all-reduce": duration(self.alone),
            "bytes sent": "not counted here" if self.sent is None else f"{self.sent:,.0f}",
            "bytes predicted": f"{self.predicted_bytes:,.0f}",
            "more": "" if self.excess is None else f"{self.excess:+.2%}",
            "latency": duration(self.latency) if several else "",
            "bandwidth": rate(self.bandwidth, "B/s") if several else "",
        }


def measure(processes: Iterable[int] = (1, 2), rounds: int = 21, timeout: float = 300) -> list[Step]:
    """Time steps on each of these numbers of processes, and count the bytes that they send.

    Args:
        processes: Numbers of processes.
        rounds: Steps of each kind.
        timeout: Seconds for each number.

    Raises:
        ClusterError: There are too few rounds, or a process failed.
    """
    if rounds < 1:
        raise ClusterError("invalid number of rounds", expected="1 or more", got=rounds)
    return [_step(count, rounds, timeout) for count in processes]


def table(steps: Iterable[Step]) -> pd.DataFrame:
    """Return the steps formatted as a table, one per row."""
    return pd.DataFrame([step.row() for step in steps]).set_index("processes")


def _step(processes: int, rounds: int, timeout: float) -> Step:
    with tempfile.TemporaryDirectory() as folder:
        command = ["python", "-m", "mlhood.jaxlab.cluster.bench_program", folder, str(rounds)]
        launch(command, processes, threads=1, timeout=timeout, say=lambda line: None)
        results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]
    # a step takes as long as its slowest process
    seconds, alone, *probes = (max(times) for times in zip(*(result["seconds"] for result in results), strict=True))
    counts = [result["bytes"] for result in results]
    latency, bandwidth = _fit(processes, probes)
    return Step(
        processes=processes,
        seconds=seconds,
        alone=alone,
        latency=latency,
        bandwidth=bandwidth,
        sent=None if None in counts else sum(counts) / len(counts),
        gradient=results[0]["expected"],
        arrays=results[0]["arrays"],
    )


def _fit(processes: int, seconds: list[float]) -> tuple[float, float]:
    """Fit latency and bandwidth to the times of two all-reduces, each 2 (n - 1) latency + bytes / bandwidth."""
    small, large = (ring_bytes("all-reduce", size, processes) for size in PROBES)
    if processes < 2:
        return 0.0, float("inf")
    per_byte = max(seconds[1] - seconds[0], 1e-9) / (large - small)
    return max(seconds[0] - small * per_byte, 0.0) / (2 * (processes - 1)), 1 / per_byte
