"""The communication between devices: collectives parsed from HLO, and the bytes that each sends in a ring.

In a ring all-reduce each of n devices splits its data into n parts (P. Patarasuk, X. Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009): n - 1 steps of
reduce-scatter add them up, and n - 1 steps of all-gather distribute the sums.

>>> [(found.kind, found.bytes, found.groups) for found in collectives(view(gradient, *arguments).module("optimized"))]
[('all-reduce', 908, ((0, 4), (1, 5), (2, 6), (3, 7)))]
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np

from mlhood.errors import XlaError
from mlhood.jaxlab.xla.hlo import HloInstruction, Module

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
Groups = tuple[tuple[int, ...], ...]
KINDS: tuple[Kind, ...] = get_args(Kind)

_LISTED = re.compile(r"\{((?:\{[\d,]*\},?)+)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(r"mesh\[([^\]]*)\] ?\{([^}]*)\}")
_AXIS = re.compile(r"'?([\w.]+)'?=(\d+)")
_START = "-start"


@dataclass(frozen=True)
class Collective:
    """One collective operation.

    Args:
        name: The instruction's name.
        kind: The operation.
        bytes: Size of a group's full data: a device's operand of an all-reduce, its result of an all-gather, the
            results of all devices of a group of a reduce-scatter.
        groups: Groups of devices that communicate, by their position in the mesh; for a permutation, the pairs of
            source and target.
    """

    name: str
    kind: Kind
    bytes: int
    groups: Groups

    @property
    def devices(self) -> int:
        """Number of devices in a group."""
        return max((len(group) for group in self.groups), default=1)

    @property
    def sent(self) -> float:
        """Bytes that each device sends in a ring."""
        return ring_bytes(self.kind, self.bytes, self.devices)


def collectives(module: Module) -> list[Collective]:
    """Return the collectives of a compiled module in the order of execution; those in a loop's body once.

    Raises:
        XlaError: The syntax of a collective's groups is unknown.
    """
    return [
        _collective(instruction)
        for _, instruction in module.walk()
        if instruction.opcode.removesuffix(_START) in KINDS and not instruction.opcode.endswith("-done")
    ]


def ring_bytes(kind: Kind, size: int, devices: int) -> float:
    """Return the bytes that each device sends for a collective on `size` bytes in a ring; 0 for one device.

    Args:
        kind: The kind of collective.
        size: As `Collective.bytes`.
        devices: Devices in the ring.
    """
    if devices < 2:
        return 0.0
    if kind == "collective-permute":
        return float(size)
    rounds = 2 if kind == "all-reduce" else 1
    return rounds * (devices - 1) * size / devices


def _collective(instruction: HloInstruction) -> Collective:
    kind = cast("Kind", instruction.opcode.removesuffix(_START))
    permute = kind == "collective-permute"
    groups = _groups(instruction, "source_target_pairs" if permute else "replica_groups")
    arrays = instruction.arrays
    if instruction.opcode.endswith(_START) and kind != "all-reduce" and len(arrays) > 1:
        # the operands precede the results, and a permutation's tokens follow them
        arrays = arrays[1:2] if permute else arrays[len(arrays) // 2 :]
    size = sum(array.bytes for array in arrays)
    parts = len(groups[0]) if groups and kind == "reduce-scatter" else 1
    return Collective(instruction.name, kind, size * parts, groups)


def _groups(instruction: HloInstruction, attribute: str) -> Groups:
    """Parse groups in XLA's three syntaxes (xla/hlo/ir/replica_group.h): listed, as an iota, or as axes of a mesh.

    Empty groups, which mean all devices, are rejected: the text does not state their number. JAX never writes them.
    """
    text = instruction.attributes.partition(f"{attribute}=")[2]
    if match := _LISTED.match(text):
        return tuple(tuple(int(i) for i in group.split(",") if i) for group in re.findall(r"\{([\d,]*)\}", match[1]))
    if match := _IOTA.match(text):
        shape, sizes = (tuple(int(i) for i in part.split(",")) for part in match.group(1, 2))
        order = tuple(int(i) for i in match[3].split(",")) if match[3] else tuple(range(len(sizes)))
        groups = np.arange(np.prod(sizes)).reshape(sizes).transpose(order).reshape(shape)
        return tuple(map(tuple, groups.tolist()))
    if match := _MESH.match(text):
        sizes = {axis: int(size) for axis, size in _AXIS.findall(match[1])}
        axes = [axis.strip(" '") for axis in match[2].split(",")]
        if sizes.keys() >= set(axes):
            positions = np.arange(np.prod(list(sizes.values()))).reshape(tuple(sizes.values()))
            return _slices(positions, [list(sizes).index(axis) for axis in axes])
    raise XlaError("the groups of a collective cannot be parsed", where=instruction.name, got=text[:200])


def _slices(positions: np.ndarray, axes: Sequence[int]) -> Groups:
    """Return the device positions of each slice of a mesh along some of its axes."""
    fixed = [axis for axis in range(positions.ndim) if axis not in axes]
    slices = positions.transpose(*fixed, *axes).reshape(-1, math.prod(positions.shape[axis] for axis in axes))
    return tuple(map(tuple, slices.tolist()))
