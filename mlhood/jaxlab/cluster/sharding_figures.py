"""Pictures of arrays in parts on devices, and of the ring along which the devices of a group send."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.collectives import Collective, Groups
from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_GREY, LIGHT_YELLOW, Point, canvas

Part = tuple[tuple[int, int], tuple[int, int]]  # rows from and to, columns from and to

_FILLS = (LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN, "#f6d5e5", "#d9d2f0", "#ffd9c7", "#d2e9e9", LIGHT_GREY)
_SIDE, _LEAST, _GAP = 2.0, 0.45, 0.5  # inches: the longest side of an array, the shortest, and between arrays
_MOST = 64  # devices
_SPOT = 0.2  # inches: the radius of a device in a ring


def layout(arrays: Mapping[str, jax.Array | tuple[tuple[int, ...], Sharding]]) -> Figure:
    """Draw how arrays are split: a tile for each part, with the numbers of the devices that hold it.

    A tile's colour tells the first of its devices. Arrays are drawn by their first two dimensions, the first downwards;
    the lengths of the sides are not to scale.

    Args:
        arrays: By name: JAX arrays, or shapes with shardings.

    Raises:
        ClusterError: There is nothing to draw, too many devices, or a shape that does not fall into parts.
    """
    parts = {name: _parts(name, *_read(one)) for name, one in arrays.items()}
    if not parts:
        raise ClusterError("there is no array to draw", expected="a dictionary of arrays by name")
    sizes = {name: _size(_read(one)[0]) for name, one in arrays.items()}
    width = sum(max(wide, 1.1) + _GAP for wide, _ in sizes.values()) + _GAP
    height = max(high for _, high in sizes.values()) + 0.9
    figure, axes = canvas(width, height)
    left = _GAP
    for name, one in arrays.items():
        shape = _read(one)[0]
        for part, devices in parts[name].items():
            _tile(axes, (left, height - 0.65), sizes[name], _two(shape), part, _devices(devices))
        text = f"{name}  [{', '.join(map(str, shape))}]"
        axes.text(left, height - 0.5, text, fontsize=10, va="bottom")
        left += max(sizes[name][0], 1.1) + _GAP
    return figure


def ring(collective: Collective) -> Figure:
    """Draw who sends to whom: a ring for each group of devices, with the bytes that each sends in all and in one step.

    A permutation is drawn as one ring of all its devices, with an arrow for each pair.

    Raises:
        ClusterError: There are too many devices, or none that send.
    """
    rings, arrows = _rings(collective)
    devices = max(map(len, rings), default=0)
    if devices < 2 or len(rings) * devices > _MOST:
        raise ClusterError(
            "this exchange cannot be drawn",
            where=collective.name,
            expected=f"2 devices or more that exchange with each other, {_MOST} in all",
            got=f"{len(rings)} groups of {devices}",
        )
    across = 1.0 + 0.3 * max(devices, 4)
    columns = max(1, min(len(rings), int(9 / across)))
    rows = math.ceil(len(rings) / columns)
    figure, axes = canvas(max(columns * across + 0.4, 5.2), rows * across + 0.8)
    high = rows * across
    axes.text(0.1, high + 0.5, f"{collective.kind} of {collective.bytes:,} bytes", fontsize=11, weight="bold")
    axes.text(0.1, high + 0.2, _says(collective), fontsize=9.5)
    for number, group in enumerate(rings):
        row, column = divmod(number, columns)
        _circle(axes, (0.2 + (column + 0.5) * across, high - (row + 0.5) * across), across / 2 - 0.4, group, arrows)
    return figure


def _rings(collective: Collective) -> tuple[Groups, Groups]:
    """Return the devices of each ring, and the pairs of devices that send and get."""
    if collective.kind == "collective-permute":
        return (tuple(sorted({device for pair in collective.groups for device in pair})),), collective.groups
    around = [pair for group in collective.groups for pair in zip(group, group[1:] + group[:1], strict=True)]
    return collective.groups, tuple(around)


def _read(one: Any) -> tuple[tuple[int, ...], Sharding]:
    return one if isinstance(one, tuple) else (one.shape, one.sharding)


def _parts(name: str, shape: tuple[int, ...], sharding: Sharding) -> dict[Part, list[int]]:
    """Return the devices that hold each part."""
    if len(sharding.device_set) > _MOST:
        raise ClusterError("there are too many devices to draw", where=name, expected=f"at most {_MOST}")
    try:
        held = sharding.devices_indices_map(shape)
    except ValueError as error:
        raise ClusterError("this array does not fall into equal parts", where=name, got=error) from error
    found: dict[Part, list[int]] = {}
    # a device's number is its place, as in HLO: what JAX calls its id may have gaps between processes
    numbers = {device: number for number, device in enumerate(sorted(held, key=lambda device: device.id))}
    for device, index in held.items():
        bounds = [one.indices(size)[:2] for one, size in zip(index or (), shape, strict=True)]
        down, right = [*bounds, (0, 1), (0, 1)][:2]
        found.setdefault((down, right), []).append(numbers[device])
    return {part: sorted(devices) for part, devices in found.items()}


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns; a vector stands."""
    rows, columns = [*shape, 1, 1][:2]
    return rows, columns


def _size(shape: tuple[int, ...]) -> tuple[float, float]:
    """Return width and height of an array in inches: longer where it has more, but never thin."""
    rows, columns = _two(shape)
    longest = max(rows, columns)
    return max(_SIDE * math.sqrt(columns / longest), _LEAST), max(_SIDE * math.sqrt(rows / longest), _LEAST)


def _tile(axes: Axes, corner: Point, size: tuple[float, float], shape: tuple[int, int], part: Part, text: str) -> None:
    """Draw a part of an array of this shape, drawn in this size with its upper left corner there."""
    (top, below), (left, right) = part
    wide, high = size[0] * (right - left) / shape[1], size[1] * (below - top) / shape[0]
    x, y = corner[0] + size[0] * left / shape[1], corner[1] - size[1] * below / shape[0]
    fill = _FILLS[int(re.split("[,-]", text)[0]) % len(_FILLS)]
    axes.add_patch(Rectangle((x, y), wide, high, facecolor=fill, edgecolor="#444444", linewidth=1))
    turned = 90 if wide < min(high, 0.09 * len(text)) else 0
    axes.text(
        x + wide / 2, y + high / 2, text, ha="center", va="center", rotation=turned,
        fontsize=6 if min(wide, high) < 0.2 else 9,
    )  # fmt: skip


def _devices(numbers: list[int]) -> str:
    """Return "0-7" for neighbours, else the numbers one by one."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


def _says(collective: Collective) -> str:
    if collective.kind == "collective-permute":
        return f"each sends {collective.sent:,.0f} bytes, once"
    steps = (2 if collective.kind == "all-reduce" else 1) * (collective.devices - 1)
    part = collective.sent / steps
    return f"each sends {collective.sent:,.0f} bytes in {steps} step{'s' * (steps > 1)} of {part:,.0f}"


def _circle(axes: Axes, centre: Point, radius: float, group: tuple[int, ...], arrows: Groups) -> None:
    angles = math.pi / 2 - 2 * math.pi * np.arange(len(group)) / len(group)
    around = [(centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)) for angle in angles]
    places = dict(zip(group, around, strict=True))
    for source, target in [pair for pair in arrows if places.keys() >= set(pair)]:
        arrow = FancyArrowPatch(
            places[source], places[target], arrowstyle="-|>", mutation_scale=11, color="#222222", linewidth=1.3,
            connectionstyle="arc3,rad=-0.2", shrinkA=_SPOT * 72, shrinkB=_SPOT * 72,
        )  # fmt: skip
        axes.add_patch(arrow)
    for device, place in places.items():
        axes.add_patch(Circle(place, _SPOT, facecolor=_FILLS[device % len(_FILLS)], edgecolor="#444444"))
        axes.text(*place, str(device), ha="center", va="center", fontsize=9)
