"""Figures of arrays sharded over devices, and of the ring in which the devices of a group communicate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from mlhood.jaxlab.cluster.collectives import Collective, Groups
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_GREY, LIGHT_YELLOW, Point, canvas

Bounds = tuple[tuple[int, int], tuple[int, int]]  # start and stop of the rows, start and stop of the columns

_FILLS = (LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN, "#f6d5e5", "#d9d2f0", "#ffd9c7", "#d2e9e9", LIGHT_GREY)
_MAX_SIDE, _MIN_SIDE, _GAP = 2.0, 0.45, 0.5  # inches: sides of an array, and the gap between arrays
_RADIUS = 0.2  # inches: of a device in a ring


def layout(arrays: Mapping[str, jax.Array | tuple[tuple[int, ...], Sharding]]) -> Figure:
    """Draw how arrays are sharded: a tile for each shard, with the numbers of the devices that hold it.

    A tile's colour is that of its first device. Arrays are drawn by their first two dimensions, the first downwards;
    the lengths of the sides are not to scale.

    Args:
        arrays: By name: JAX arrays, or shapes with shardings.
    """
    inputs = {name: a if isinstance(a, tuple) else (a.shape, a.sharding) for name, a in arrays.items()}
    shards = {name: _shards(shape, sharding) for name, (shape, sharding) in inputs.items()}
    sizes = {name: _size(shape) for name, (shape, _) in inputs.items()}
    height = max(high for _, high in sizes.values()) + 0.9
    figure, axes = canvas(sum(max(wide, 1.1) + _GAP for wide, _ in sizes.values()) + _GAP, height)
    left = _GAP
    for name, (shape, _) in inputs.items():
        _draw_array(axes, (left, height - 0.65), sizes[name], shape, shards[name])
        text = f"{name}  [{', '.join(map(str, shape))}]"
        axes.text(left, height - 0.5, text, fontsize=10, va="bottom")
        left += max(sizes[name][0], 1.1) + _GAP
    descriptions = [f"{name} {list(shape)}: {_shards_text(shards[name])}" for name, (shape, _) in inputs.items()]
    return set_alt_text(figure, f"How arrays are sharded over devices. {'; '.join(descriptions)}.")


def _shards_text(shards: Mapping[Bounds, list[int]]) -> str:
    (rows, columns), devices = next(iter(shards.items()))
    holders = f"device{'s' * (len(devices) > 1)} {_devices_text(devices)}"
    if len(shards) == 1:
        return f"whole on {holders}"
    return f"{len(shards)} shards, the first of {rows[1] - rows[0]} x {columns[1] - columns[0]} on {holders}"


def ring(collective: Collective) -> Figure:
    """Draw a ring for each group of devices, with the bytes that each device sends in total and per step.

    A permutation is drawn as one ring of all its devices, with an arrow for each pair.

    Args:
        collective: With groups of two devices or more.
    """
    rings, arrows = _rings(collective)
    devices = max(map(len, rings))
    side = 1.0 + 0.3 * max(devices, 4)
    columns = max(1, min(len(rings), int(9 / side)))
    height = math.ceil(len(rings) / columns) * side
    figure, axes = canvas(max(columns * side + 0.4, 5.2), height + 0.8)
    axes.text(0.1, height + 0.5, f"{collective.kind} of {collective.bytes:,} bytes", fontsize=11, weight="bold")
    axes.text(0.1, height + 0.2, _bytes_text(collective), fontsize=9.5)
    for i, group in enumerate(rings):
        row, column = divmod(i, columns)
        _draw_ring(axes, (0.2 + (column + 0.5) * side, height - (row + 0.5) * side), side / 2 - 0.4, group, arrows)
    return set_alt_text(
        figure,
        f"{len(rings)} ring{'s' * (len(rings) > 1)} of {devices} devices, each of which sends to the next:",
        f"{collective.kind} of {collective.bytes:,} bytes, {_bytes_text(collective)}.",
    )


def _rings(collective: Collective) -> tuple[Groups, Groups]:
    """Return the devices of each ring, and the pairs of source and target."""
    if collective.kind == "collective-permute":
        return (tuple(sorted({device for pair in collective.groups for device in pair})),), collective.groups
    neighbours = [pair for group in collective.groups for pair in zip(group, group[1:] + group[:1], strict=True)]
    return collective.groups, tuple(neighbours)


def _shards(shape: tuple[int, ...], sharding: Sharding) -> dict[Bounds, list[int]]:
    """Return the devices that hold each shard."""
    indices = sharding.devices_indices_map(shape)
    shards: dict[Bounds, list[int]] = {}
    # devices are numbered by position, as in HLO: JAX's ids may have gaps between processes
    for position, device in enumerate(sorted(indices, key=lambda device: device.id)):
        bounds = [part.indices(size)[:2] for part, size in zip(indices[device] or (), shape, strict=True)]
        rows, columns = [*bounds, (0, 1), (0, 1)][:2]
        shards.setdefault((rows, columns), []).append(position)
    return shards


def _rows_and_columns(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the first two sizes; a vector is a column."""
    rows, columns = [*shape, 1, 1][:2]
    return rows, columns


def _size(shape: tuple[int, ...]) -> tuple[float, float]:
    """Return width and height of an array in inches: growing with its sizes, with a minimum."""
    rows, columns = _rows_and_columns(shape)
    width, height = (_MAX_SIDE * math.sqrt(size / max(rows, columns)) for size in (columns, rows))
    return max(width, _MIN_SIDE), max(height, _MIN_SIDE)


def _draw_array(
    axes: Axes, corner: Point, size: tuple[float, float], shape: tuple[int, ...], shards: dict[Bounds, list[int]]
) -> None:
    """Draw the shards of an array in a rectangle of this size with its upper left corner there."""
    rows, columns = _rows_and_columns(shape)
    for ((top, bottom), (left, right)), devices in shards.items():
        width, height = size[0] * (right - left) / columns, size[1] * (bottom - top) / rows
        x, y = corner[0] + size[0] * left / columns, corner[1] - size[1] * bottom / rows
        fill = _FILLS[devices[0] % len(_FILLS)]
        axes.add_patch(Rectangle((x, y), width, height, facecolor=fill, edgecolor="#444444", linewidth=1))
        text = _devices_text(devices)
        angle = 90 if width < min(height, 0.09 * len(text)) else 0
        font = 6 if min(width, height) < 0.2 else 9
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", rotation=angle, fontsize=font)


def _devices_text(devices: list[int]) -> str:
    """Return "0-7" for consecutive numbers, otherwise all of them."""
    if len(devices) > 2 and devices == list(range(devices[0], devices[-1] + 1)):
        return f"{devices[0]}-{devices[-1]}"
    return ",".join(map(str, devices))


def _bytes_text(collective: Collective) -> str:
    if collective.kind == "collective-permute":
        return f"each sends {collective.sent:,.0f} bytes, once"
    steps = (2 if collective.kind == "all-reduce" else 1) * (collective.devices - 1)
    part = collective.sent / steps
    return f"each sends {collective.sent:,.0f} bytes in {steps} step{'s' * (steps > 1)} of {part:,.0f}"


def _draw_ring(axes: Axes, centre: Point, radius: float, group: tuple[int, ...], arrows: Groups) -> None:
    angles = math.pi / 2 - 2 * math.pi * np.arange(len(group)) / len(group)
    points = [(centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)) for angle in angles]
    positions = dict(zip(group, points, strict=True))
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "color": "#222222", "linewidth": 1.3}
    style |= {"connectionstyle": "arc3,rad=-0.2", "shrinkA": _RADIUS * 72, "shrinkB": _RADIUS * 72}
    for source, target in [pair for pair in arrows if positions.keys() >= set(pair)]:
        axes.add_patch(FancyArrowPatch(positions[source], positions[target], **style))
    for device, position in positions.items():
        axes.add_patch(Circle(position, _RADIUS, facecolor=_FILLS[device % len(_FILLS)], edgecolor="#444444"))
        axes.text(*position, str(device), ha="center", va="center", fontsize=9)
