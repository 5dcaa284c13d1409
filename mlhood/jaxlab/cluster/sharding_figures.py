"""Figures of arrays sharded over devices, and of the steps of an all-reduce in a ring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.sharding import Sharding
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import LIGHT_BLUE, LIGHT_GREEN, LIGHT_GREY, LIGHT_YELLOW, Grid, Point, canvas

Bounds = tuple[tuple[int, int], tuple[int, int]]  # start and stop of the rows, start and stop of the columns

_FILLS = (LIGHT_BLUE, LIGHT_YELLOW, LIGHT_GREEN, "#f6d5e5", "#d9d2f0", "#ffd9c7", "#d2e9e9", LIGHT_GREY)
_MAX_SIDE, _MIN_SIDE, _GAP = 2.0, 0.45, 0.5  # inches: sides of an array, and the gap between arrays


def layout(
    arrays: Mapping[str, jax.Array | tuple[tuple[int, ...], Sharding]], notes: Mapping[str, str] | None = None
) -> Figure:
    """Draw how arrays are sharded: a tile for each shard, with the numbers of the devices that hold it.

    A tile's colour is that of its first device. Arrays are drawn by their first two dimensions, the first downwards;
    the lengths of the sides are not to scale.

    Args:
        arrays: By name: JAX arrays, or shapes with shardings.
        notes: By name: what to write below an array, such as what is sent of it.
    """
    notes = notes or {}
    inputs = {name: a if isinstance(a, tuple) else (a.shape, a.sharding) for name, a in arrays.items()}
    shards = {name: _shards(shape, sharding) for name, (shape, sharding) in inputs.items()}
    sizes = {name: _size(shape) for name, (shape, _) in inputs.items()}
    margin = 0.25 + 0.18 * max((note.count("\n") + 1 for note in notes.values()), default=0)
    height = max(high for _, high in sizes.values()) + 0.65 + margin
    figure, axes = canvas(sum(max(wide, 1.1) + _GAP for wide, _ in sizes.values()) + _GAP, height)
    left = _GAP
    for name, (shape, _) in inputs.items():
        _draw_array(axes, (left, height - 0.65), sizes[name], shape, shards[name])
        text = f"{name}  [{', '.join(map(str, shape))}]"
        axes.text(left, height - 0.5, text, fontsize=10, va="bottom")
        if name in notes:
            axes.text(left, height - 0.7 - sizes[name][1], notes[name], fontsize=9, va="top")
        left += max(sizes[name][0], 1.1) + _GAP
    descriptions = [f"{name} {list(shape)}: {_shards_text(shards[name])}" for name, (shape, _) in inputs.items()]
    descriptions += [f"below {name}: {' '.join(note.split())}" for name, note in notes.items()]
    return set_alt_text(figure, f"How arrays are sharded over devices. {'; '.join(descriptions)}.")


def _shards_text(shards: Mapping[Bounds, list[int]]) -> str:
    (rows, columns), devices = next(iter(shards.items()))
    holders = f"device{'s' * (len(devices) > 1)} {_devices_text(devices)}"
    if len(shards) == 1:
        return f"whole on {holders}"
    return f"{len(shards)} shards, the first of {rows[1] - rows[0]} x {columns[1] - columns[0]} on {holders}"


def ring_all_reduce(devices: int, steps: Sequence[int]) -> Figure:
    """Draw the parts of the data on each device of a ring after so many steps of an all-reduce.

    A part shows of how many devices it is the sum. A heavy line surrounds what a device has just received.

    Args:
        devices: Two or more.
        steps: Numbers of steps, from 0 to 2 * (devices - 1), one picture for each.
    """
    side = 0.34
    width = max(devices * side, 1.2) + 0.75
    figure, axes = canvas(len(steps) * width + 0.1, devices * side + 1.15)
    for i, step in enumerate(steps):
        grid = Grid(axes, i * width + 0.65, devices * side + 0.45, devices, devices, side, side)
        sums, received = _after(step, devices)
        for (part, device), count in np.ndenumerate(sums):
            grid.fill(part, device, 1, 1, LIGHT_GREEN if count == devices else LIGHT_YELLOW if count > 1 else "white")
            grid.write(part, device, count)
        grid.lines()
        grid.heads([f"part {part}" for part in range(devices)] if not i else [], range(devices))
        for part, device in received:
            grid.outline(part, device, 1, 1)
        title = "at the start" if not step else f"after step {step}"
        axes.text(grid.centre[0], grid.top + 0.42, title, ha="center", fontsize=10, weight="bold")
    axes.text(0.65, 0.25, "columns: devices; numbers: of how many devices a part is the sum", fontsize=9)
    axes.text(0.65, 0.08, "framed: just received; yellow: a partial sum; green: a complete one", fontsize=9)
    whole = [f"after {step}: {np.count_nonzero(_after(step, devices)[0] == devices)}" for step in steps]
    return set_alt_text(
        figure,
        f"A ring all-reduce over {devices} devices with {devices} parts of the data each.",
        f"Complete sums on all devices together, by the number of steps: {', '.join(whole)}.",
    )


def _after(steps: int, devices: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Return of how many devices each part on each device is the sum, and which parts the last step sent there."""
    sums, received = np.ones((devices, devices), int), []
    for step in range(steps):
        senders = np.arange(devices)
        parts, receivers = (senders - step) % devices, (senders + 1) % devices
        # in the second round a device passes on a complete sum, which replaces what the next one has
        sums[parts, receivers] = sums[parts, senders] + (step < devices - 1)
        received = list(zip(parts.tolist(), receivers.tolist(), strict=True))
    return sums, received


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
