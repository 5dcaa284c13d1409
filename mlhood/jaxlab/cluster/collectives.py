"""What devices send each other: collectives read from HLO, and the bytes that a ring of devices needs for each.

A ring sends each of its n devices' n-th parts around (P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms
for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009): n - 1 steps to sum them and n - 1 to spread the
sums.

>>> found = collectives(view(by_jit(mesh(data=2, model=4)), *arguments).module("optimized"))
>>> [(one.kind, one.bytes, one.groups) for one in found]
[('all-reduce', 320, ((0, 1, 2, 3), (4, 5, 6, 7))), ('all-reduce', 908, ((0, 4), (1, 5), (2, 6), (3, 7)))]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, cast, get_args

import numpy as np
from jax.sharding import Mesh

from mlhood.errors import XlaError
from mlhood.jaxlab.xla.hlo import Instruction, Module

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
Groups = tuple[tuple[int, ...], ...]
KINDS: tuple[Kind, ...] = get_args(Kind)

_LISTED = re.compile(r"\{((?:\{[\d,]*\},?)+)\}")
_COUNTED = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESHED = re.compile(r"mesh\[([^\]]*)\] ?\{([^}]*)\}")
_AXIS = re.compile(r"'?([\w.]+)'?=(\d+)")
_START = "-start"


@dataclass(frozen=True)
class Collective:
    """One exchange between devices.

    Args:
        name: The instruction's.
        kind: What it does.
        bytes: Of the whole that a group works on: what a device puts into an all-reduce or gets from an all-gather,
            what all devices of a group together get from a reduce-scatter.
        groups: Devices that exchange with each other, by their place in the mesh; of a permutation, who sends to whom.
    """

    name: str
    kind: Kind
    bytes: int
    groups: Groups

    @property
    def devices(self) -> int:
        """How many devices are in a group."""
        return max((len(group) for group in self.groups), default=1)

    @property
    def sent(self) -> float:
        """Bytes that each device sends, by a ring."""
        return ring_bytes(self.kind, self.bytes, self.devices)

    def along(self, mesh: Mesh) -> tuple[str, ...]:
        """Return the axes of a mesh along which it goes; none if its groups are not rows of the mesh."""
        places = np.arange(mesh.size).reshape(mesh.devices.shape)
        for count in range(1, places.ndim + 1):
            for axes in combinations(range(places.ndim), count):
                rest = [axis for axis in range(places.ndim) if axis not in axes]
                rows = places.transpose(*rest, *axes).reshape(-1, int(np.prod([places.shape[axis] for axis in axes])))
                if {frozenset(row) for row in rows.tolist()} == {frozenset(group) for group in self.groups}:
                    return tuple(mesh.axis_names[axis] for axis in axes)
        return ()


def collectives(module: Module) -> list[Collective]:
    """Return the exchanges of a compiled module in the order in which they run; those of a loop's body once.

    Raises:
        XlaError: XLA has written an exchange's groups in a way that is not known here.
    """
    return [
        _collective(one)
        for _, one in module.walk()
        if one.opcode.removesuffix(_START) in KINDS and not one.opcode.endswith("-done")
    ]


def ring_bytes(kind: Kind, size: int, devices: int) -> float:
    """Return the bytes that each of the devices sends when `size` bytes go around a ring; 0 for one device.

    Args:
        kind: Of the exchange.
        size: As `Collective.bytes`.
        devices: In the ring.

    Raises:
        XlaError: There is no such exchange.
    """
    if kind not in KINDS:
        raise XlaError("there is no such collective", expected=", ".join(KINDS), got=kind)
    if devices < 2:
        return 0.0
    if kind == "collective-permute":
        return float(size)
    rounds = 2 if kind == "all-reduce" else 1
    return rounds * (devices - 1) * size / devices


def by_axis(found: Iterable[Collective], mesh: Mesh) -> dict[str, int]:
    """Return the bytes of exchanges along each axis of a mesh; along several at once under their names with a +.

    What a device exchanges with itself, along an axis of one device, goes nowhere and does not count.
    """
    totals = dict.fromkeys(map(str, mesh.axis_names), 0)
    for one in (each for each in found if each.devices > 1):
        name = "+".join(map(str, one.along(mesh))) or "other"
        totals[name] = totals.get(name, 0) + one.bytes
    return totals


def _collective(one: Instruction) -> Collective:
    kind = cast("Kind", one.opcode.removesuffix(_START))
    permuted = kind == "collective-permute"
    groups = _groups(one, "source_target_pairs" if permuted else "replica_groups")
    arrays = one.arrays
    if one.opcode.endswith(_START) and kind != "all-reduce" and len(arrays) > 1:
        # what is given stands before what comes, and a permutation's tokens after it
        arrays = arrays[1:2] if permuted else arrays[len(arrays) // 2 :]
    size = sum(array.bytes for array in arrays)
    parts = len(groups[0]) if groups and kind == "reduce-scatter" else 1
    return Collective(one.name, kind, size * parts, groups)


def _groups(one: Instruction, name: str) -> Groups:
    """Read groups in the three ways of XLA (xla/hlo/ir/replica_group.h): one by one, counted, or as a mesh's axes.

    No groups, for all devices, are refused: the text does not say how many there are. JAX writes them always.
    """
    text = one.attributes.partition(f"{name}=")[2]
    if found := _LISTED.match(text):
        return tuple(tuple(int(i) for i in group.split(",") if i) for group in re.findall(r"\{([\d,]*)\}", found[1]))
    if found := _COUNTED.match(text):
        shape, sizes = (tuple(int(i) for i in part.split(",")) for part in found.group(1, 2))
        order = tuple(int(i) for i in found[3].split(",")) if found[3] else tuple(range(len(sizes)))
        return _rows(np.arange(np.prod(sizes)).reshape(sizes).transpose(order).reshape(shape))
    if found := _MESHED.match(text):
        sizes = {axis: int(size) for axis, size in _AXIS.findall(found[1])}
        axes = [axis.strip(" '") for axis in found[2].split(",")]
        if sizes.keys() >= set(axes):
            names = list(sizes)
            places = np.arange(np.prod(list(sizes.values()))).reshape(tuple(sizes.values()))
            order = [names.index(axis) for axis in [*(name for name in names if name not in axes), *axes]]
            return _rows(places.transpose(order).reshape(-1, int(np.prod([sizes[axis] for axis in axes]))))
    raise XlaError("the groups of a collective cannot be read", where=one.name, got=text[:200])


def _rows(places: np.ndarray) -> Groups:
    return tuple(tuple(int(i) for i in row) for row in places)
