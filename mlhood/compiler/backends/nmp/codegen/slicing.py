"""Slices: which part of a layer a tilelet computes at once, and whether it fits its blobs.

A layer is a chain of stages: the first may multiply, the others work on each channel alone and follow it in the blobs.
Blob 0 holds the input slice, blob 1 bias and weights, blob 2 and 3 the results of the stages in turn. With double
buffering each of them holds two slices, so that one can be transferred while the other is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import NmpStage
from mlhood.errors import CompilerError

ORDERS = ("output", "weight", "input")  # what is stationary
ALIGNMENT = 8  # bytes: the largest accumulator


@dataclass(frozen=True)
class Slicing:
    """How a layer is cut, and in which order its slices are computed.

    With one slice of input channels, results leave the tilelet once in every order. With several, "output" finishes
    each output slice before the next, and loads inputs and weights again; "weight" and "input" keep a slice of weights
    or of the input, and move the accumulators of the outputs to DRAM and back.

    Args:
        rows: Output rows of a slice.
        columns: Output columns of a slice.
        filters: Output channels of a slice.
        channels: Input channels of a slice.
        order: One of `ORDERS`.
        tiles: Groups of tiles with different filters; the tiles of a group have different pixels.
        tilelets: Groups of the tilelets in a tile with different filters.
        double_buffered: Whether blobs hold two slices.
    """

    rows: int
    columns: int
    filters: int
    channels: int
    order: str = "output"
    tiles: int = 1
    tilelets: int = 1
    double_buffered: bool = False

    def __str__(self) -> str:
        size = f"{self.rows}x{self.columns} pixels, {self.filters} filters, {self.channels} channels"
        groups = f"{self.tiles}x{self.tilelets} groups of filters"
        return f"{size}, {self.order} stationary, {groups}{', double buffered' if self.double_buffered else ''}"


@dataclass(frozen=True)
class Region:
    """Rows and columns of an image, from the first to before the end."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.bottom - self.top

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.right - self.left

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Reach:
    """What a stage reads for a region of its output: the region of its input, and the padding above and left of it."""

    region: Region
    pad_top: int
    pad_left: int


def reach(stage: NmpStage, output: Region) -> Reach:
    """Return what a stage reads for a region of its output."""
    rows = _reach(output.top, output.bottom, stage, 0, stage.height)
    columns = _reach(output.left, output.right, stage, 1, stage.width)
    return Reach(Region(rows[0], rows[1], columns[0], columns[1]), rows[2], columns[2])


def _reach(first: int, end: int, stage: NmpStage, axis: int, length: int) -> tuple[int, int, int]:
    """Return first and end of the input along an axis, at least one element, and the padding before it."""
    window = stage.window
    stride, pad = window.strides[axis], window.pads[axis]
    low = first * stride - pad
    high = (end - 1) * stride - pad + (window.kernel[axis] - 1) * window.dilations[axis] + 1
    begin = min(max(low, 0), length - 1)
    return begin, max(min(high, length), begin + 1), begin - low


def regions(stages: Sequence[NmpStage], output: Region) -> list[Reach]:
    """Return what each stage reads for a region of the last one's output."""
    found: list[Reach] = []
    for stage in reversed(stages):
        found.append(reach(stage, output))
        output = found[-1].region
    return found[::-1]


def parts(length: int, size: int) -> list[tuple[int, int]]:
    """Return an axis in parts of a size, the last one perhaps shorter: first and end of each."""
    return [(first, min(first + size, length)) for first in range(0, length, size)]


def operand_bytes(stages: Sequence[NmpStage], slicing: Slicing) -> dict[str, int]:
    """Return the bytes of the largest slice of each operand: input, weights (with bias), and the stages' results.

    Results are accumulators of 4 bytes for each byte of an element where sums are not complete, or are added wide.
    """
    cut = (slicing.rows, slicing.columns, slicing.filters, slicing.channels)
    return {name: int(size) for name, size in slice_bytes(stages, *cut).items()}


def slice_bytes(stages: Sequence[NmpStage], rows: Any, columns: Any, filters: Any, channels: Any) -> dict[str, Any]:
    """Return what `operand_bytes` does for the sizes of one slice, or for arrays of the sizes of many."""
    first, last = stages[0], stages[-1]
    filters, channels = np.minimum(filters, last.filters), np.minimum(channels, first.channels)
    pixels = _pixels(stages, np.minimum(rows, last.out_height), np.minimum(columns, last.out_width))
    found = {"input": (channels if first.multiplies else filters) * pixels[0] * first.element, "weights": 0 * filters}
    for stage in stages:
        aligned = -(-found["weights"] // ALIGNMENT) * ALIGNMENT
        found["weights"] = aligned + stage.weight_bytes(filters, channels)
    split = channels < first.channels if first.multiplies else False
    for i, stage in enumerate(stages):
        wide = stage.multiplies & (stage.wide | split)
        name = "output" if i == len(stages) - 1 else f"result {i + 1}"
        found[name] = filters * pixels[i + 1] * stage.element * (1 + 3 * wide)
    return found


def _pixels(stages: Sequence[NmpStage], rows: Any, columns: Any) -> list[Any]:
    """Return the most pixels that each stage reads for a tile of the last one's output, and those of the tile."""
    found = [rows * columns]
    for stage in reversed(stages):
        window = stage.window
        spans = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(window.kernel, window.dilations, strict=True)]
        rows = np.minimum((rows - 1) * window.strides[0] + spans[0], stage.height)
        columns = np.minimum((columns - 1) * window.strides[1] + spans[1], stage.width)
        found.append(rows * columns)
    return found[::-1]


def limit(machine: Machine, double_buffered: bool) -> int:
    """Return the bytes that a slice may have in a blob."""
    return machine.blob_bytes // (2 if double_buffered else 1) // ALIGNMENT * ALIGNMENT


def misfits(stages: Sequence[NmpStage], slicing: Slicing, machine: Machine) -> list[tuple[str, int, int]]:
    """Return each operand of a slicing that does not fit its blob: its name, its bytes, and those that it may have."""
    room = limit(machine, slicing.double_buffered)
    found = [(name, size, room) for name, size in operand_bytes(stages, slicing).items() if size > room]
    spills = slicing.order != "output" and slicing.channels < stages[0].channels and stages[0].multiplies
    if spills and len(stages) > 1:  # accumulators come back from DRAM, into the blob of the first result only
        found.append(("accumulators of fused stages", 1, 0))
    return found


def check_fits(stages: Sequence[NmpStage], slicing: Slicing, machine: Machine) -> None:
    """Check that a slicing can be executed.

    Raises:
        CompilerError: A size or the order is invalid, or an operand does not fit its blob.
    """
    sizes = {name: getattr(slicing, name) for name in ("rows", "columns", "filters", "channels")}
    if wrong := {name: size for name, size in sizes.items() if type(size) is not int or size < 1}:
        raise CompilerError("invalid slicing", expected="positive integers", got=wrong)
    if slicing.order not in ORDERS:
        raise CompilerError("unknown order", expected=", ".join(ORDERS), got=repr(slicing.order))
    if machine.tiles % slicing.tiles or machine.tilelets % slicing.tilelets:
        expected = f"divisors of {machine.tiles} tiles and of {machine.tilelets} tilelets"
        raise CompilerError("invalid groups of filters", expected=expected, got=f"{slicing.tiles}x{slicing.tilelets}")
    for name, size, room in misfits(stages, slicing, machine):
        what = f"the slice does not fit: {name}"
        raise CompilerError(what, where=str(slicing), expected=f"at most {room:,} bytes", got=f"{size:,} bytes")
