"""Depthwise convolution and pooling of blocked activations, prepared once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.codegen.window_kernel import FIELDS, Operation, WindowVariant, build
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.product import UNBOUNDED, Clip

_TASKS_PER_THREAD = 4
_MAX_PIXELS = 8  # that are computed at once
_TILE, _SINGLE = 2, 4  # costs in pixels: of beginning a tile, and of a pixel on its own


@dataclass(frozen=True)
class Windows:
    """Windows of the planes of an image.

    Args:
        planes: Blocks of channels, of all images.
        size: Height and width of a plane.
        out: Height and width of the result.
        kernel: Height and width of a window.
        stride: Vertical and horizontal.
        dilation: Vertical and horizontal.
        padding: At the top, left, bottom and right.
    """

    planes: int
    size: tuple[int, int]
    out: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]

    def bounds(self, axis: int) -> np.ndarray:
        """Return the first element of each window inside the image, and the one after the last: int64 [windows, 2]."""
        starts = np.arange(self.out[axis]) * self.stride[axis] - self.padding[axis]
        dilation = self.dilation[axis]
        first = np.maximum(0, -(starts // dilation))
        last = np.clip(-((starts - self.size[axis]) // dilation), 0, self.kernel[axis])
        return np.stack([np.minimum(first, last), last], axis=1).astype(np.int64)

    def counts(self, axis: int, count_pads: bool) -> np.ndarray:
        """Return how many elements of each window count in a mean: float32 [windows]."""
        if not count_pads:
            first, last = self.bounds(axis).T
            return (last - first).astype(np.float32)
        before, after = self.padding[axis], self.padding[axis + 2]
        padded = Windows(
            self.planes,
            (self.size[0] + (before + after) * (axis == 0), self.size[1] + (before + after) * (axis == 1)),
            self.out,
            self.kernel,
            self.stride,
            self.dilation,
            (0, 0, 0, 0),
        )
        return padded.counts(axis, False)


def depthwise(
    g: Geometry,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    clip: Clip | None = None,
    *,
    threads: int = 1,
    target: Target | None = None,
    epilogue: Sequence[Step] = (),
) -> NativeCall:
    """Prepare a depthwise convolution: operands "x", "y" and optionally "residual", blocked float32.

    Args:
        g: The geometry, with as many groups as channels and filters.
        w: float32 [C, 1, KH, KW].
        bias: float32 [C] or None.
        clip: Bounds that the result is clamped to; None for none.
        threads: Number of threads.
        target: The processor; the host by default.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`; they replace the clamping.
    """
    target = target or host()
    lanes = target.lanes
    blocks = -(-g.channels // lanes)
    taps = g.kernel[0] * g.kernel[1]
    weights = np.zeros((blocks * lanes, taps), np.float32)
    weights[: g.channels] = w.reshape(g.channels, taps)
    packed = np.ascontiguousarray(weights.reshape(blocks, lanes, taps).transpose(0, 2, 1))
    padded = np.zeros(blocks * lanes, np.float32)
    if bias is not None:
        padded[: g.channels] = bias
    size = g.height, g.width
    windows = Windows(g.images * blocks, size, g.out, g.kernel, g.stride, g.dilation, g.padding)
    addresses = {"w": packed.ctypes.data, "bias": padded.ctypes.data, "blocks": blocks}
    keep, steps = (packed, padded), checked_steps(epilogue, 1)
    return _prepare(windows, "convolution", addresses, clip or UNBOUNDED, keep, threads, target, steps)


def pool(
    windows: Windows,
    operation: Operation,
    *,
    count_pads: bool = False,
    threads: int = 1,
    target: Target | None = None,
) -> NativeCall:
    """Prepare a pooling: operands "x" and "y", blocked float32.

    Args:
        windows: The windows.
        operation: "maximum" or "mean".
        count_pads: Whether the padding counts as zeros in a mean.
        threads: Number of threads.
        target: The processor; the host by default.
    """
    counts = [np.ascontiguousarray(windows.counts(axis, count_pads)) for axis in (0, 1)]
    addresses = {"row_counts": counts[0].ctypes.data, "column_counts": counts[1].ctypes.data}
    return _prepare(windows, operation, addresses, UNBOUNDED, tuple(counts), threads, target or host())


def pixels_at_once(count: int, most: int) -> int:
    """Return how many of the pixels inside a row to compute at once: many, and so that few are left."""
    costs = {size: count // size * (size + _TILE) + count % size * _SINGLE for size in range(1, min(most, count) + 1)}
    return min(costs, key=lambda size: (costs[size], -size), default=1)


def _prepare(
    windows: Windows,
    operation: Operation,
    values: dict[str, int],
    clip: Clip,
    keep: tuple[np.ndarray, ...],
    threads: int,
    target: Target,
    epilogue: tuple[Step, ...] = (),
) -> NativeCall:
    rows, columns = windows.bounds(0), windows.bounds(1)
    inside = np.flatnonzero((columns[:, 0] == 0) & (columns[:, 1] == windows.kernel[1]))
    high = windows.out[0]
    chunks = 1 if threads == 1 else min(high, -(-threads * _TASKS_PER_THREAD // max(1, windows.planes)))
    chunk_rows = -(-high // max(1, chunks))
    chunks = -(-high // max(1, chunk_rows))
    fields = dict.fromkeys(FIELDS, 0) | {
        "tasks": windows.planes * chunks,
        "planes": windows.planes,
        "row_chunks": chunks,
        "chunk_rows": chunk_rows,
        "high": windows.size[0],
        "wide": windows.size[1],
        "out_high": high,
        "out_wide": windows.out[1],
        "first": int(inside[0]) if inside.size else 0,
        "last": int(inside[-1]) + 1 if inside.size else 0,
        "rows": rows.ctypes.data,
        "columns": columns.ctypes.data,
        "top": windows.padding[0],
        "left": windows.padding[1],
    }
    floats = {"floor": clip[0], "ceiling": clip[1]}
    pixels = pixels_at_once(inside.size, min(_MAX_PIXELS, target.registers // 2))
    variant = WindowVariant(operation, windows.kernel, windows.stride, windows.dilation, pixels, epilogue)
    return native_call(
        jit.load(build, target, variant),
        FIELDS,
        fields | values,
        ("x", "y", "residual"),
        floats=floats,
        keep=(rows, columns, *keep),
        name="depthwise" if operation == "convolution" else f"{operation} pool",
    )
