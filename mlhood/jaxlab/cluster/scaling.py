"""Predicted time of a step of data-parallel training on n devices, from a measured time and specified links.

A step computes a gradient on each device, then all-reduces it. Nothing is measured here: the time of computation is the
caller's measurement on one device, links have their specified speed.

An all-reduce of B bytes over n devices, on links with latency a (s) and bandwidth b (bytes/s):

- ring: 2 (n - 1) a + 2 (n - 1) / n B / b; minimal bytes, but a number of messages proportional to n
- recursive doubling: log2(n) (a + B / b); few messages, each of all bytes
- halving and doubling: 2 log2(n) a + 2 (n - 1) / n B / b; few messages and minimal bytes, between distant devices

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", Int. J.
of High Performance Computing Applications 19 (2005), section 4.5, without the time of additions; P. Patarasuk, X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and Distributed Computing 69 (2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from mlhood.errors import ClusterError
from mlhood.measure.units import duration, rate

POWERS = tuple(2**k for k in range(11))
MODES = {"strong": "one batch, shared out", "weak": "a batch for each device"}


def _check(what: str, value: float, *, positive: bool = False, maximum: float = math.inf) -> None:
    in_range = value > 0 if positive else value >= 0
    if not (in_range and value <= maximum and math.isfinite(value)):
        expected = "above 0" if positive else "0 or more"
        expected += "" if maximum == math.inf else f", at most {maximum:g}"
        raise ClusterError(f"invalid {what}", expected=expected, got=repr(value))


def _check_devices(devices: int) -> None:
    if not isinstance(devices, int) or devices < 1:
        raise ClusterError("invalid number of devices", expected="1 or more", got=repr(devices))


@dataclass(frozen=True)
class Link:
    """A unidirectional link between two devices.

    Args:
        name: For tables and figures.
        bandwidth: Bytes/s.
        latency: Seconds for an empty message, including software.
        bandwidth_source: The specification, or "measured".
        latency_source: Likewise; "assumed" if there is none.

    Raises:
        ClusterError: The bandwidth is not positive, or the latency is negative.
    """

    name: str
    bandwidth: float
    latency: float
    bandwidth_source: str = "assumed"
    latency_source: str = "assumed"

    def __post_init__(self) -> None:
        _check("bandwidth", self.bandwidth, positive=True)
        _check("latency", self.latency)

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
class _UniformNetwork:
    """A network in which all communicating devices are connected by the same kind of link."""

    link: Link

    @property
    def links(self) -> tuple[Link, ...]:
        """The link."""
        return (self.link,)


@dataclass(frozen=True)
class Ring(_UniformNetwork):
    """Devices in a ring; each sends its neighbour an n-th of the bytes 2 (n - 1) times."""

    name: str = field(default="ring", init=False)

    def seconds(self, bytes: float, devices: int) -> float:
        """Return the time of an all-reduce."""
        return ring_seconds(bytes, devices, self.link.bandwidth, self.link.latency)


@dataclass(frozen=True)
class RecursiveDoubling(_UniformNetwork):
    """Pairs at distance 1, 2, 4, ... exchange all bytes; any two devices are connected.

    If n is not a power of two, the devices in excess of one first send their data to others, and finally get the sum.
    """

    name: str = field(default="recursive doubling", init=False)

    def seconds(self, bytes: float, devices: int) -> float:
        """Return the time of an all-reduce."""
        _check_devices(devices)
        rounds = devices.bit_length() - 1
        messages = rounds if 2**rounds == devices else rounds + 2
        return messages * (self.link.latency + bytes / self.link.bandwidth)


@dataclass(frozen=True)
class HalvingDoubling(_UniformNetwork):
    """Rabenseifner's algorithm: pairs exchange a half, a quarter, ... of the bytes, then gather the sums in reverse.

    If n is not a power of two, as for `RecursiveDoubling`.
    """

    name: str = field(default="halving and doubling", init=False)

    def seconds(self, bytes: float, devices: int) -> float:
        """Return the time of an all-reduce."""
        _check_devices(devices)
        rounds = devices.bit_length() - 1
        excess = 0 if 2**rounds == devices else 2 * (self.link.latency + bytes / self.link.bandwidth)
        return excess + 2 * rounds * self.link.latency + ring_bytes(bytes, 2**rounds) / self.link.bandwidth


@dataclass(frozen=True)
class Hierarchical:
    """Nodes of several devices: reduce-scatter inside, all-reduce of the parts between nodes, all-gather inside.

    Args:
        inside: Between the devices of a node.
        between: Between nodes, shared by a node's devices.
        size: Devices per node.

    Raises:
        ClusterError: The size is less than 1.
    """

    inside: Link
    between: Link
    size: int = 8

    def __post_init__(self) -> None:
        _check_devices(self.size)

    @property
    def name(self) -> str:
        """The algorithm, in a few words."""
        return f"rings in nodes of {self.size} and between them"

    @property
    def links(self) -> tuple[Link, ...]:
        """The link inside a node, and the one between nodes."""
        return self.inside, self.between

    def seconds(self, bytes: float, devices: int) -> float:
        """Return the time of an all-reduce.

        Raises:
            ClusterError: The devices do not fill the last node.
        """
        _check_devices(devices)
        if devices > self.size and devices % self.size:
            raise ClusterError("the devices do not fill nodes", expected=f"a multiple of {self.size}", got=devices)
        inside = ring_seconds(bytes, min(devices, self.size), self.inside.bandwidth, self.inside.latency)
        nodes = max(1, devices // self.size)
        # the rings of a node's devices carry one part each; together these are all bytes on the node's link
        return inside + ring_seconds(bytes, nodes, self.between.bandwidth, self.between.latency)


Network = Ring | RecursiveDoubling | HalvingDoubling | Hierarchical  # an all-reduce algorithm on certain links


@dataclass(frozen=True)
class Step:
    """One training step on n devices.

    Args:
        devices: n.
        compute: Seconds of computation on each device.
        communication: Seconds of the all-reduce.
        exposed: Seconds of it that do not overlap with computation.
        efficiency: The time that one device needs for the same work, over the total time of n devices.
    """

    devices: int
    compute: float
    communication: float
    exposed: float
    efficiency: float

    @property
    def seconds(self) -> float:
        """The total time of the step."""
        return self.compute + self.exposed


@dataclass(frozen=True)
class Prediction:
    """Predicted steps on increasing numbers of devices, with the assumptions.

    Args:
        network: The all-reduce algorithm and its links.
        compute: Seconds of a step's computation on one device, measured.
        bytes: Size of the gradient.
        mode: "strong" or "weak".
        overlap: Fraction of the computation that communication may overlap with.
        steps: In ascending order of devices.
    """

    network: Network
    compute: float
    bytes: float
    mode: str
    overlap: float
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def assumptions(self) -> list[str]:
        """All assumptions, one per line."""
        overlap = f"communication beside {self.overlap:.0%} of computation" if self.overlap else "no overlap"
        scaled = "1/n of it" if self.mode == "strong" else "as long"
        return [
            f"{self.mode} scaling: {MODES[self.mode]}",
            f"computation: {duration(self.compute)} on one device (measured), {scaled} on n",
            f"gradient: {rate(self.bytes, 'B')}; all-reduce: {self.network.name}; {overlap}",
            *(str(link) for link in self.network.links),
        ]

    def devices_at(self, efficiency: float) -> int:
        """Return the largest predicted number of devices with at least this efficiency.

        Raises:
            ClusterError: The efficiency is not between 0 and 1, or no prediction reaches it.
        """
        _check("efficiency", efficiency, positive=True, maximum=1)
        sufficient = [step.devices for step in self.steps if step.efficiency >= efficiency]
        if not sufficient:
            best = max(step.efficiency for step in self.steps)
            raise ClusterError(
                "no number of devices reaches this efficiency", expected=f"{efficiency:.0%}", got=f"{best:.1%} at best"
            )
        return max(sufficient)

    def table(self) -> pd.DataFrame:
        """Return a row for each number of devices; times in seconds."""
        columns = ["compute", "communication", "exposed", "step", "efficiency"]
        rows = [(step.compute, step.communication, step.exposed, step.seconds, step.efficiency) for step in self.steps]
        devices = pd.Index([step.devices for step in self.steps], name="devices")
        return pd.DataFrame(rows, index=devices, columns=columns)


def ring_bytes(bytes: float, devices: int) -> float:
    """Return the bytes that each device sends in a ring all-reduce: 2 (n - 1) / n of all; 0 for a single device."""
    _check("number of bytes", bytes)
    _check_devices(devices)
    return 2 * (devices - 1) / devices * bytes


def ring_seconds(bytes: float, devices: int, bandwidth: float, latency: float) -> float:
    """Return the time of a ring all-reduce: 2 (n - 1) messages of an n-th of the bytes each."""
    _check("bandwidth", bandwidth, positive=True)
    _check("latency", latency)
    return 2 * (devices - 1) * latency + ring_bytes(bytes, devices) / bandwidth


def step_seconds(compute: float, bytes: float, devices: int, bandwidth: float, latency: float) -> float:
    """Return the time of a step on n devices: strong scaling, ring all-reduce, no overlap.

    Args:
        compute: Seconds of the full batch on one device.
        bytes: Size of the gradient.
        devices: n.
        bandwidth: Of a link, bytes/s.
        latency: Of a message, in seconds.

    Raises:
        ClusterError: A number is out of range.
    """
    link = Link("link", bandwidth, latency)
    return predict(compute, bytes, Ring(link), [devices]).steps[0].seconds


def predict(
    compute: float,
    bytes: float,
    network: Network,
    devices: Iterable[int] = POWERS,
    mode: str = "strong",
    overlap: float = 0.0,
) -> Prediction:
    """Predict steps on increasing numbers of devices.

    Args:
        compute: Seconds of a step's computation on one device: of the full batch for strong scaling, of one device's
            batch for weak scaling.
        bytes: Size of the gradient.
        network: `Ring`, `RecursiveDoubling`, `HalvingDoubling` or `Hierarchical`.
        devices: Numbers of devices; powers of two up to 1,024 by default.
        mode: "strong": one batch is divided among the devices. "weak": each device has a batch of constant size.
        overlap: Fraction of the computation that communication may overlap with: the gradients of the last layers are
            ready early in the backward pass, so up to about 2/3; 0 if the all-reduce starts after it.

    Raises:
        ClusterError: A number is out of range, or the mode is unknown.
    """
    _check("time of computation", compute, positive=True)
    _check("number of bytes", bytes)
    _check("fraction of overlap", overlap, maximum=1)
    if mode not in MODES:
        raise ClusterError("unknown kind of scaling", expected=", ".join(MODES), got=repr(mode))
    counts = sorted(set(devices))
    if not counts:
        raise ClusterError("there is nothing to predict", expected="one or more numbers of devices", got="none")
    steps = []
    for count in counts:
        _check_devices(count)
        local = compute / count if mode == "strong" else compute
        communication = network.seconds(bytes, count) if count > 1 else 0.0
        exposed = max(0.0, communication - overlap * local)
        steps.append(Step(count, local, communication, exposed, local / (local + exposed)))
    return Prediction(network, compute, bytes, mode, overlap, tuple(steps))
