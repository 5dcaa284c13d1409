"""Predicted time of a step of data-parallel training on n devices, from a measured time and specified links.

A step divides one batch among the devices, computes a gradient on each, then all-reduces it in a ring. Nothing is
measured here: the time of computation is the caller's measurement on one device, links have their specified speed.

An all-reduce of B bytes over n devices, on links with latency a (s) and bandwidth b (bytes/s), takes
2 (n - 1) a + 2 (n - 1) / n B / b seconds: minimal bytes, but a number of messages proportional to n.

Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and
Distributed Computing 69 (2009).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mlhood.measure.units import duration, rate

POWERS = tuple(2**k for k in range(11))


@dataclass(frozen=True)
class Link:
    """A unidirectional link between two devices.

    Args:
        name: For tables and figures.
        bandwidth: Bytes/s.
        latency: Seconds for an empty message, including software.
        bandwidth_source: The specification, or "measured".
        latency_source: Where the latency comes from; "assumed" if it was not measured.
    """

    name: str
    bandwidth: float
    latency: float
    bandwidth_source: str = "assumed"
    latency_source: str = "assumed"

    def __str__(self) -> str:
        bandwidth = f"{rate(self.bandwidth, 'B/s')} ({self.bandwidth_source})"
        return f"{self.name}: {bandwidth}, {duration(self.latency)} a message ({self.latency_source})"


_NCCL = "NCCL's cost model"
# Bandwidths are those of a standard or a vendor, at line rate and without headers; programs see less. Latencies are
# those of NCCL's model for one step of a ring (src/graph/tuning.cc, hwLatencies, protocol Simple): one for NVLink, and
# one for all networks. The loopback interface has no specification: measure it, and make a Link.
LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link("10 GbE", 10e9 / 8, 14e-6, "IEEE 802.3ae", _NCCL),
        Link("25 GbE", 25e9 / 8, 14e-6, "IEEE 802.3by", _NCCL),
        Link("100 GbE", 100e9 / 8, 14e-6, "IEEE 802.3ba", _NCCL),
        Link("InfiniBand NDR", 400e9 / 8, 14e-6, "400 Gbit/s, ConnectX-7", _NCCL),
        # the 900 GB/s in NVIDIA's data sheet of the H100 are the sum of both directions
        Link("NVLink 4", 450e9, 3.4e-6, "H100 data sheet", _NCCL),
        # one of a chip's six links; a ring uses one per direction. Jouppi et al., "TPU v4", ISCA 2023
        Link("TPU v4 ICI", 50e9, 1e-6, "Jouppi et al. 2023"),
    )
}
"""Links between devices by their names, from 10 GbE to NVLink, with where their numbers come from."""


@dataclass(frozen=True)
class Ring:
    """Devices in a ring; each sends its neighbour an n-th of the bytes 2 (n - 1) times."""

    link: Link

    def seconds(self, bytes: float, devices: int) -> float:
        """Return the time of an all-reduce."""
        return 2 * (devices - 1) * self.link.latency + 2 * (devices - 1) / devices * bytes / self.link.bandwidth


@dataclass(frozen=True)
class StepTime:
    """One training step on n devices.

    Args:
        devices: n.
        compute: Seconds of computation on each device.
        communication: Seconds of the all-reduce, after the computation.
    """

    devices: int
    compute: float
    communication: float

    @property
    def seconds(self) -> float:
        """The total time of the step."""
        return self.compute + self.communication

    @property
    def efficiency(self) -> float:
        """The time that one device needs for the same work, over the total time of n devices."""
        return self.compute / self.seconds


@dataclass(frozen=True)
class Prediction:
    """Predicted steps on increasing numbers of devices.

    Args:
        network: The ring and its link.
        steps: In ascending order of devices.
    """

    network: Ring
    steps: tuple[StepTime, ...] = field(repr=False)


def step_seconds(compute: float, bytes: float, devices: int, bandwidth: float, latency: float) -> float:
    """Return the time of a step on n devices: strong scaling, ring all-reduce, no overlap.

    Args:
        compute: Seconds of the full batch on one device.
        bytes: Size of the gradient.
        devices: n.
        bandwidth: Of a link, bytes/s.
        latency: Of a message, in seconds.
    """
    return predict(compute, bytes, Ring(Link("link", bandwidth, latency)), [devices]).steps[0].seconds


def predict(compute: float, bytes: float, network: Ring, devices: Iterable[int] = POWERS) -> Prediction:
    """Predict steps on increasing numbers of devices.

    Args:
        compute: Seconds of the full batch on one device.
        bytes: Size of the gradient.
        network: The ring.
        devices: Numbers of devices; powers of two up to 1,024 by default.
    """
    steps = [StepTime(count, compute / count, network.seconds(bytes, count)) for count in sorted(set(devices))]
    return Prediction(network, tuple(steps))
