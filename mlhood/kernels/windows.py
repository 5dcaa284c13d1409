"""Operations on the windows of each channel alone, on blocked activations: depthwise convolution and pooling.

Channels are in the lanes. Where all windows of a row lie inside the image, several pixels are computed at once, and
neighbouring windows share their loads; a window that reaches over the left or right border is computed alone. Tables
hold which rows and columns of each window lie inside the image, so no padded copy is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, Int, Pointer, StackSlot
from mlhood.kernels.codegen.steps import Step, add_and_finish
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.native import NativeCall, native_call

_TASKS_PER_THREAD = 4
_MAX_PIXELS = 8  # that are computed at once
_TILE, _SINGLE = 2, 4  # costs in pixels: of beginning a tile, and of a pixel on its own
Operation = Literal["convolution", "maximum", "mean"]
_IMAGE = ("tasks", "planes", "row_chunks", "chunk_rows", "high", "wide", "out_high", "out_wide", "first", "last")
_OPERANDS = ("x", "y", "residual", "w", "bias", "blocks", "rows", "columns", "row_counts", "column_counts")
FIELDS = (*_IMAGE, *_OPERANDS, "top", "left")


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

    def bounds(self, axis: int, *, with_pads: bool = False) -> np.ndarray:
        """Return the first element of each window inside the image, and the one after the last: int64 [windows, 2].

        Args:
            axis: 0 or 1.
            with_pads: Whether the padding is inside.
        """
        starts = np.arange(self.out[axis]) * self.stride[axis] - self.padding[axis]
        before, after = (self.padding[axis], self.padding[axis + 2]) if with_pads else (0, 0)
        dilation = self.dilation[axis]
        first = np.maximum(0, -((starts + before) // dilation))
        last = np.clip(-((starts - self.size[axis] - after) // dilation), 0, self.kernel[axis])
        return np.stack([np.minimum(first, last), last], axis=1).astype(np.int64)


def depthwise(
    g: Geometry,
    w: np.ndarray,
    bias: np.ndarray | None = None,
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
        threads: Number of threads.
        target: The processor; the host by default.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`.
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
    keep, steps = (packed, padded), checked_steps(epilogue)
    return _prepare(windows, "convolution", addresses, keep, threads, target, steps)


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
    counts = [np.diff(windows.bounds(axis, with_pads=count_pads)).astype(np.float32) for axis in (0, 1)]
    addresses = {"row_counts": counts[0].ctypes.data, "column_counts": counts[1].ctypes.data}
    return _prepare(windows, operation, addresses, tuple(counts), threads, target or host())


def pixels_at_once(count: int, most: int) -> int:
    """Return how many of the pixels inside a row to compute at once: many, and so that few are left."""
    costs = {size: count // size * (size + _TILE) + count % size * _SINGLE for size in range(1, min(most, count) + 1)}
    return min(costs, key=lambda size: (costs[size], -size), default=1)


def _prepare(
    windows: Windows,
    operation: Operation,
    values: dict[str, int],
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
    pixels = pixels_at_once(inside.size, min(_MAX_PIXELS, target.registers // 2))
    variant = WindowVariant(operation, windows.kernel, windows.stride, windows.dilation, pixels, epilogue)
    return native_call(
        jit.load(build, target, variant),
        FIELDS,
        fields | values,
        ("x", "y", "residual"),
        keep=(rows, columns, *keep),
        name="depthwise" if operation == "convolution" else f"{operation} pool",
    )


# -- the generated code


@dataclass(frozen=True)
class WindowVariant:
    """A variant of the kernel.

    Args:
        operation: What is computed of each window.
        kernel: Height and width of the window.
        stride: Vertical and horizontal.
        dilation: Vertical and horizontal.
        pixels: Number of pixels that are computed at once.
        epilogue: Steps that are applied to a convolution.
    """

    operation: Operation
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pixels: int
    epilogue: tuple[Step, ...] = ()


def build(target: Target, variant: WindowVariant) -> str:
    """Return the module as LLVM IR."""
    return _LoopNest(Arguments(FIELDS), target, variant).build()


class _LoopNest:
    def __init__(self, arguments: Arguments, target: Target, variant: WindowVariant) -> None:
        self.code, self.arguments, self.variant, self.lanes = arguments.code, arguments, variant, target.lanes
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.kind = ir.VectorType(FLOAT, target.lanes)

    def build(self) -> str:
        """Build the function: a task computes some rows of one block of channels of one image."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            plane, first = task // f["row_chunks"], task % f["row_chunks"] * f["chunk_rows"]
            with self.code.loop(first, (first + f["chunk_rows"]).minimum(f["out_high"])) as row:
                self._row(plane, row)
        return self.arguments.finished()

    def _row(self, plane: Int, row: Int) -> None:
        """Compute a row: windows at the left border, inside (several at once, then one at a time), at the right one."""
        f, pixels = self.field, self.variant.pixels
        inside = f["last"] - (f["last"] - f["first"]) % pixels
        with self.code.loop(0, f["first"]) as column:
            self._pixel(plane, row, column)
        with self.code.loop(f["first"], inside, pixels) as column:
            self._tile(plane, row, column)
        with self.code.loop(inside, f["out_wide"]) as column:
            self._pixel(plane, row, column)

    def _tile(self, plane: Int, row: Int, column: Int) -> None:
        """Compute neighbouring pixels whose windows lie inside the row."""
        v, f, lanes = self.variant, self.field, self.lanes
        sums = self._sums(v.pixels)
        line_start = column * v.stride[1] - f["left"]
        with self._lines(plane, row) as (tap, line):
            loaded: dict[int, Any] = {}
            for k in range(v.kernel[1]):
                weight = self._weight(plane, tap, self.code.constant(k))
                for pixel, total in enumerate(sums):
                    offset = pixel * v.stride[1] + k * v.dilation[1]
                    if offset not in loaded:
                        loaded[offset] = line.at((line_start + offset) * lanes).load(lanes)
                    total.set(self._accumulate(total.get(), loaded[offset], weight))
        for pixel, total in enumerate(sums):
            self._store(plane, row, column + pixel, total.get())

    def _pixel(self, plane: Int, row: Int, column: Int) -> None:
        """Compute one pixel, from the part of its window that lies inside the image."""
        v, f, lanes = self.variant, self.field, self.lanes
        (total,) = self._sums(1)
        first, last = self._bounds("columns", column)
        start = column * v.stride[1] - f["left"]
        with self._lines(plane, row) as (tap, line), self.code.loop(first, last) as k:
            vector = line.at((start + k * v.dilation[1]) * lanes).load(lanes)
            total.set(self._accumulate(total.get(), vector, self._weight(plane, tap, k)))
        self._store(plane, row, column, total.get())

    def _sums(self, count: int) -> list[StackSlot]:
        initial = float("-inf") if self.variant.operation == "maximum" else 0.0
        return [self.code.variable(self.kind, ir.Constant(self.kind, [initial] * self.lanes)) for _ in range(count)]

    @contextmanager
    def _lines(self, plane: Int, row: Int) -> Iterator[tuple[Int, Pointer]]:
        """Loop over the rows of a window that lie inside the image: (row of the window, its line of the image)."""
        f, v = self.field, self.variant
        first, last = self._bounds("rows", row)
        with self.code.loop(first, last) as tap:
            line = row * v.stride[0] - f["top"] + tap * v.dilation[0]
            yield tap, self.arguments.pointer("x").at((plane * f["high"] + line) * f["wide"] * self.lanes)

    def _bounds(self, table: str, index: Int) -> tuple[Int, Int]:
        pair = self.arguments.pointer(table, INDEX).at(index * 2)
        return pair.load_int(), pair.at(1).load_int()

    def _weight(self, plane: Int, row: Int, column: Int) -> Any:
        if self.variant.operation != "convolution":
            return None
        high, wide = self.variant.kernel
        tap = (plane % self.field["blocks"] * high + row) * wide + column
        return self.arguments.pointer("w").at(tap * self.lanes).load(self.lanes)

    def _accumulate(self, total: Any, vector: Any, weight: Any) -> Any:
        builder = self.code.builder
        if weight is not None:
            return self.code.fma(vector, weight, total)
        if self.variant.operation == "mean":
            return builder.fadd(total, vector)
        # NaN on either side propagates
        keep = builder.or_(builder.fcmp_ordered(">=", total, vector), builder.fcmp_unordered("uno", total, total))
        return builder.select(keep, total, vector)

    def _store(self, plane: Int, row: Int, column: Int, total: Any) -> None:
        f, builder, lanes = self.field, self.code.builder, self.lanes
        pixel = ((plane * f["out_high"] + row) * f["out_wide"] + column) * lanes
        if self.variant.operation == "mean":
            counts = (("row_counts", row), ("column_counts", column))
            numbers = [self.arguments.pointer(name).at(index).load() for name, index in counts]
            count = builder.fmul(*numbers)
            total = builder.fdiv(total, self.code.splat(count, lanes))
        if self.variant.operation == "convolution":
            bias = self.arguments.pointer("bias").at(plane % f["blocks"] * lanes).load(lanes)
            total = add_and_finish(self.arguments, self.variant.epilogue, total, bias, pixel)
        self.arguments.pointer("y").at(pixel).store(total)
