"""What a step of data parallel training would take on n devices: computed from a measured time and stated links.

A step computes a gradient on each device, then all devices add theirs up (all-reduce). Nothing here is measured: the
time of computation is what the caller has measured on one device, links have the speed that somebody states.

An all-reduce of B bytes over n devices, on links with latency a (s) and bandwidth b (bytes/s):

- ring: 2 (n - 1) a + 2 (n - 1) / n B / b; least bytes, but as many messages as there are devices
- recursive doubling: log2(n) (a + B / b); few messages, each of all bytes
- halving and doubling: 2 log2(n) a + 2 (n - 1) / n B / b; few messages and least bytes, between devices far apart

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", Int. J.
of High Performance Computing Applications 19 (2005), section 4.5, additions left out; P. Patarasuk, X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel and Distributed Computing 69 (2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import pandas as pd

from mlhood.errors import ClusterError
from mlhood.measure.units import duration, rate

POWERS = tuple(2**k for k in range(11))
MODES = {"strong": "one batch, shared out", "weak": "a batch for each device"}


def _check(what: str, value: float, *, above: bool = False, most: float = math.inf) -> None:
    enough = value > 0 if above else value >= 0
    if not (enough and value <= most and math.isfinite(value)):
        least = "above 0" if above else "0 or more"
        expected = least if most == math.inf else f"{least}, at most {most:g}"
        raise ClusterError(f"this {what} has no meaning", expected=expected, got=repr(value))


def _check_devices(devices: int) -> None:
    if not isinstance(devices, int) or devices < 1:
        raise ClusterError("there is no such number of devices", expected="1 or more", got=repr(devices))


@dataclass(frozen=True)
class Link:
    """A link between two devices, one way.

    Args:
        name: For tables and pictures.
        bandwidth: Bytes/s.
        latency: Seconds that a message of no bytes takes, software and all.
        bandwidth_source: Who states it, or "measured".
        latency_source: Likewise; "assumed" where nobody does.

    Raises:
        ClusterError: The bandwidth is not above 0, or the latency below.
    """

    name: str
    bandwidth: float
    latency: float
    bandwidth_source: str = "assumed"
    latency_source: str = "assumed"

    def __post_init__(self) -> None:
        _check("bandwidth", self.bandwidth, above=True)
        _check("latency", self.latency)

    def __str__(self) -> str:
        bandwidth = f"{rate(self.bandwidth, 'B/s')} ({self.bandwidth_source})"
        return f"{self.name}: {bandwidth}, {duration(self.latency)} a message ({self.latency_source})"


_NCCL = "NCCL's cost model"
# Stated: what a standard or a vendor writes, at full rate and without headers; programs see less. Latencies are those
# that NCCL reckons with for one step of a ring (src/graph/tuning.cc, hwLatencies, protocol Simple): one for NVLink, and
# one for all networks. The loopback has no stated speed: measure it, and make a Link.
LINKS = {
    link.name: link
    for link in (
        Link("10 GbE", 10e9 / 8, 14e-6, "IEEE 802.3ae", _NCCL),
        Link("25 GbE", 25e9 / 8, 14e-6, "IEEE 802.3by", _NCCL),
        Link("100 GbE", 100e9 / 8, 14e-6, "IEEE 802.3ba", _NCCL),
        Link("InfiniBand NDR", 400e9 / 8, 14e-6, "400 Gbit/s, ConnectX-7", _NCCL),
        # 900 GB/s in NVIDIA's data sheet of the H100 are both ways together
        Link("NVLink 4", 450e9, 3.4e-6, "H100 data sheet", _NCCL),
        # one of six links of a chip; a ring uses one each way. Jouppi et al., "TPU v4", ISCA 2023
        Link("TPU v4 ICI", 50e9, 1e-6, "Jouppi et al. 2023"),
    )
}


class Network(Protocol):
    """How gradients are added up, and on which links."""

    @property
    def name(self) -> str:
        """The algorithm, in a few words."""
        ...

    @property
    def links(self) -> tuple[Link, ...]:
        """What is assumed about links."""
        ...

    def seconds(self, bytes: float, devices: int) -> float:
        """Return how long an all-reduce of that many bytes takes."""
        ...


@dataclass(frozen=True)
class _OneLink:
    """A network in which all devices that exchange are linked alike: neighbours of a ring, or any two."""

    link: Link

    @property
    def links(self) -> tuple[Link, ...]:
        """The one kind there is."""
        return (self.link,)


@dataclass(frozen=True)
class Ring(_OneLink):
    """Devices in a ring; each sends its neighbour an n-th of the bytes 2 (n - 1) times."""

    name: str = field(default="ring", init=False)

    def seconds(self, bytes: float, devices: int) -> float:
        """Return how long an all-reduce takes."""
        return ring_seconds(bytes, devices, self.link.bandwidth, self.link.latency)


@dataclass(frozen=True)
class Doubling(_OneLink):
    """Pairs at distance 1, 2, 4, ... exchange all bytes; any two devices are linked.

    Where n is no power of two, the devices beyond one first send all they have to others, and get the sum at the end.
    """

    name: str = field(default="recursive doubling", init=False)

    def seconds(self, bytes: float, devices: int) -> float:
        """Return how long an all-reduce takes."""
        _check_devices(devices)
        rounds = devices.bit_length() - 1
        messages = rounds if 2**rounds == devices else rounds + 2
        return messages * (self.link.latency + bytes / self.link.bandwidth)


@dataclass(frozen=True)
class HalvingDoubling(_OneLink):
    """Rabenseifner's: pairs exchange half of the bytes, a quarter, ... and then all parts of the sum the same way back.

    Where n is no power of two, as for `Doubling`.
    """

    name: str = field(default="halving and doubling", init=False)

    def seconds(self, bytes: float, devices: int) -> float:
        """Return how long an all-reduce takes."""
        _check_devices(devices)
        rounds = devices.bit_length() - 1
        beyond = 0 if 2**rounds == devices else 2 * (self.link.latency + bytes / self.link.bandwidth)
        return beyond + 2 * rounds * self.link.latency + ring_bytes(bytes, 2**rounds) / self.link.bandwidth


@dataclass(frozen=True)
class Hierarchical:
    """Nodes of several devices: a ring inside adds up, rings between nodes add up the parts, a ring inside hands out.

    Args:
        inside: Between the devices of a node.
        between: Between nodes; a node's devices share it.
        size: Devices of a node.

    Raises:
        ClusterError: The size is no number of devices.
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
        """Inside, between."""
        return self.inside, self.between

    def seconds(self, bytes: float, devices: int) -> float:
        """Return how long an all-reduce takes.

        Raises:
            ClusterError: The devices fill some nodes and a part of one.
        """
        _check_devices(devices)
        if devices > self.size and devices % self.size:
            raise ClusterError("these devices do not fill nodes", expected=f"a multiple of {self.size}", got=devices)
        inside = ring_seconds(bytes, min(devices, self.size), self.inside.bandwidth, self.inside.latency)
        nodes = max(1, devices // self.size)
        # each device's ring carries a part of the bytes; together they are all bytes on the node's link
        return inside + ring_seconds(bytes, nodes, self.between.bandwidth, self.between.latency)


@dataclass(frozen=True)
class Step:
    """One training step on n devices.

    Args:
        devices: n.
        compute: Seconds of computation on each device.
        communication: Seconds of the all-reduce.
        exposed: Seconds of it during which nothing is computed.
        efficiency: Of n devices' time, the share that one device would need for the same work.
    """

    devices: int
    compute: float
    communication: float
    exposed: float
    efficiency: float

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.compute + self.exposed


@dataclass(frozen=True)
class Prediction:
    """Steps on more and more devices, and what was assumed.

    Args:
        network: How gradients are added up.
        compute: Seconds of a step's computation on one device, measured.
        bytes: Of the gradient.
        mode: "strong" or "weak".
        overlap: Share of computation during which gradients may travel.
        steps: By number of devices, upwards.
    """

    network: Network
    compute: float
    bytes: float
    mode: str
    overlap: float
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def assumptions(self) -> list[str]:
        """All that the prediction rests on, in lines."""
        beside = f"communication beside {self.overlap:.0%} of computation" if self.overlap else "no overlap"
        share = "1/n of it" if self.mode == "strong" else "as long"
        return [
            f"{self.mode} scaling: {MODES[self.mode]}",
            f"computation: {duration(self.compute)} on one device (measured), {share} on n",
            f"gradient: {rate(self.bytes, 'B')}; all-reduce: {self.network.name}; {beside}",
            *(str(link) for link in self.network.links),
        ]

    def devices_at(self, efficiency: float) -> int:
        """Return the most of the predicted numbers of devices that are used at least this well.

        Raises:
            ClusterError: The efficiency is not between 0 and 1, or not even the fewest devices reach it.
        """
        _check("efficiency", efficiency, above=True, most=1)
        enough = [step.devices for step in self.steps if step.efficiency >= efficiency]
        if not enough:
            raise ClusterError("no number of devices is used that well", expected=f"an efficiency of {efficiency:.0%}",
                               got=f"{max(step.efficiency for step in self.steps):.1%} at best")  # fmt: skip
        return max(enough)

    def table(self) -> pd.DataFrame:
        """Return a row for each number of devices; times in seconds."""
        rows = {
            step.devices: {"compute": step.compute, "communication": step.communication, "exposed": step.exposed,
                           "step": step.seconds, "efficiency": step.efficiency}
            for step in self.steps
        }  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("devices")


def ring_bytes(bytes: float, devices: int) -> float:
    """Return the bytes that each device sends in a ring all-reduce: 2 (n - 1) / n of all; none if it is alone."""
    _check("number of bytes", bytes)
    _check_devices(devices)
    return 2 * (devices - 1) / devices * bytes


def ring_seconds(bytes: float, devices: int, bandwidth: float, latency: float) -> float:
    """Return how long a ring all-reduce takes: 2 (n - 1) messages of an n-th of the bytes each."""
    _check("bandwidth", bandwidth, above=True)
    _check("latency", latency)
    return 2 * (devices - 1) * latency + ring_bytes(bytes, devices) / bandwidth


def step_seconds(compute: float, bytes: float, devices: int, bandwidth: float, latency: float) -> float:
    """Return what a step takes on n devices that share out one batch and add up gradients in a ring, no overlap.

    Args:
        compute: Seconds of the whole batch on one device.
        bytes: Of the gradient.
        devices: n.
        bandwidth: Of a link, bytes/s.
        latency: Of a message, in seconds.

    Raises:
        ClusterError: A number has no meaning.
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
    """Predict steps on more and more devices.

    Args:
        compute: Seconds of a step's computation on one device: of the whole batch for strong scaling, of one device's
            for weak.
        bytes: Of the gradient.
        network: `Ring`, `Doubling`, `HalvingDoubling` or `Hierarchical`.
        devices: For how many; powers of two up to 1,024 if left out.
        mode: "strong": one batch is shared out among all. "weak": each device has a batch as large as before.
        overlap: Share of computation during which gradients may travel: those of the last layers are ready when the
            backward pass has just begun, so up to about 2/3; 0 if they wait for all.

    Raises:
        ClusterError: A number has no meaning, or there is no such mode.
    """
    _check("time of computation", compute, above=True)
    _check("number of bytes", bytes)
    _check("share of overlap", overlap, most=1)
    if mode not in MODES:
        raise ClusterError("there is no such scaling", expected=", ".join(MODES), got=repr(mode))
    numbers = sorted(set(devices))
    if not numbers:
        raise ClusterError("there is nothing to predict", expected="one or more numbers of devices", got="none")
    steps = []
    for number in numbers:
        _check_devices(number)
        own = compute / number if mode == "strong" else compute
        communication = network.seconds(bytes, number) if number > 1 else 0.0
        exposed = max(0.0, communication - overlap * own)
        steps.append(Step(number, own, communication, exposed, own / (own + exposed)))
    return Prediction(network, compute, bytes, mode, overlap, tuple(steps))
