"""A step of training on one process and on several: its time and the bytes sent, beside the prediction.

The processes share one machine, mostly its cores too, and speak through its loopback. So the bytes are those that a
cluster's network would carry, but the times are not a cluster's: more processes than cores make every step longer,
and no speed-up can be read from them. What they show is what an all-reduce adds to a step.
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
    """A step over a number of processes; each has one thread and a batch of its own, so that work grows with them.

    Args:
        processes: How many.
        seconds: A step's median, with the all-reduce of the gradient.
        alone: The median of the same step without it, at the same time in every process.
        latency: Of one step of the ring in seconds, from all-reduces of two sizes.
        bandwidth: Of the ring in bytes a second, from the same.
        sent: Bytes that a process sends in a step, by the kernel's count; None where it has none.
        gradient: Bytes of the gradient and the loss.
        arrays: In how many arrays they are; a CPU's all-reduce of several sends one after the other.
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
        """What a process sends by the ring."""
        return ring_bytes("all-reduce", self.gradient, self.processes)

    @property
    def predicted_seconds(self) -> float:
        """The step alone, the ring's 2 (n - 1) latencies for each array, and the transfer."""
        waits = self.arrays * 2 * (self.processes - 1) * self.latency
        return self.alone + waits + self.predicted_bytes / self.bandwidth

    @property
    def excess(self) -> float | None:
        """By how much more than predicted was sent, as a share; None where nothing was to be sent or counted."""
        return self.sent / self.predicted_bytes - 1 if self.sent is not None and self.predicted_bytes else None

    def row(self) -> dict[str, object]:
        """Return what people read of it."""
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
    """Time steps over each of these numbers of processes, and count what they send.

    Args:
        processes: Numbers of processes.
        rounds: Steps of each kind.
        timeout: Seconds for each number.

    Raises:
        ClusterError: There are too few rounds, or a process failed.
    """
    if rounds < 1:
        raise ClusterError("there is nothing to measure", expected="1 round or more", got=rounds)
    return [_step(count, rounds, timeout) for count in processes]


def table(steps: Iterable[Step]) -> pd.DataFrame:
    """Return the steps as people read them, one a row."""
    return pd.DataFrame([step.row() for step in steps]).set_index("processes")


def _step(processes: int, rounds: int, timeout: float) -> Step:
    with tempfile.TemporaryDirectory() as folder:
        command = ["python", "-m", "mlhood.jaxlab.cluster.bench_program", folder, str(rounds)]
        launch(command, processes, threads=1, timeout=timeout, say=lambda line: None)
        found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))]
    # a step is over when the slowest process has it
    together, alone, *probes = (max(times) for times in zip(*(one["seconds"] for one in found), strict=True))
    counts = [one["bytes"] for one in found]
    latency, bandwidth = _fit(processes, probes)
    return Step(
        processes,
        together,
        alone,
        latency,
        bandwidth,
        None if None in counts else sum(counts) / len(counts),
        found[0]["expected"],
        found[0]["arrays"],
    )


def _fit(processes: int, seconds: list[float]) -> tuple[float, float]:
    """Return latency and bandwidth from the times of two all-reduces, each 2 (n - 1) latency + bytes / bandwidth."""
    small, large = (ring_bytes("all-reduce", size, processes) for size in PROBES)
    if processes < 2:
        return 0.0, float("inf")
    per_byte = max(seconds[1] - seconds[0], 1e-9) / (large - small)
    return max(seconds[0] - small * per_byte, 0.0) / (2 * (processes - 1)), 1 / per_byte
