"""Convolutions and dense layers of bytes through AMX tiles, prepared once; `int8_conv` chooses these or vectors.

Layouts, operands and results are those of `mlhood.kernels.int8_conv`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.kernels.codegen import amx, jit
from mlhood.kernels.codegen.amx_conv_kernel import FIELDS, PIXELS, AmxVariant, build
from mlhood.kernels.codegen.int8_input import Input
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.geometry import Geometry, Layout
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.parallel import aligned
from mlhood.kernels.requantize import Rescaling

_STEP_CYCLES = 64  # of four products of tiles
_BUFFER_CYCLES = 200  # of handing 32 x 32 sums over to vector registers, as measured
_CHUNK_BYTES = 512 * 1024  # of the workspace: reused for all output channels, in the second-level cache
_TASKS_PER_THREAD = 8
_PAD_TASKS_PER_THREAD = 4
_OPERANDS = ("source", "out", "residual", "x")


@dataclass(frozen=True)
class _Window:
    """Where the workspace holds the input, and which runs of it are a window.

    Args:
        input: Kind of the input.
        pixel: Bytes of a pixel.
        padded: Height and width of the workspace, multiples of the stride.
        stride: Between windows, vertical and horizontal.
        step: Distance of the copied pixels in the input.
        runs: Offset of each run of adjacent bytes.
        out: Height and width of the result.
    """

    input: Input
    pixel: int
    padded: tuple[int, int]
    stride: tuple[int, int]
    step: tuple[int, int]
    runs: np.ndarray
    out: tuple[int, int]

    @property
    def row(self) -> int:
        """Bytes between the windows of adjacent pixels of the result."""
        return self.stride[1] * self.pixel

    def places(self) -> np.ndarray:
        """Return the row of each pixel of the result, if all tiles were one: int64 [pixels], ascending."""
        y, x = np.ogrid[: self.out[0], : self.out[1]]
        return (y * (self.padded[1] // self.stride[1]) + x).ravel().astype(np.int64)


def _conv_window(g: Geometry, layout: Layout) -> _Window:
    pixel = g.channels if layout == "plain" else -(-g.channels // BLOCK) * BLOCK
    padded, stride, step = g.padded, g.stride, (1, 1)
    if g.kernel == (1, 1) and not any(g.padding):
        padded, stride, step = g.out, (1, 1), g.stride
    high, wide = (-(-size // s) * s for size, s in zip(padded, stride, strict=True))
    y, x = (np.arange(size) * d for size, d in zip(g.kernel, g.dilation, strict=True))
    rows = (y % stride[0] * (high // stride[0]) + y // stride[0]) * wide
    if _is_one_run(g):
        x = x[:1]
    runs = (rows[:, None] + x).ravel() * pixel
    return _Window(layout, pixel, (high, wide), stride, step, runs.astype(np.int64), g.out)


def _is_one_run(g: Geometry) -> bool:
    """Return whether the pixels of a kernel's row are adjacent bytes."""
    return g.groups == 1 and g.dilation[1] == 1


def conv_is_faster(g: Geometry, weights: Int8Weights, layout: Layout) -> bool:
    """Return whether tiles are exact for a convolution, and estimated to be faster than vectors."""
    window = _conv_window(g, layout)
    run = window.pixel // g.groups * (g.kernel[1] if _is_one_run(g) else 1)
    filters = g.filters // g.groups
    return _is_faster(window, run, filters, weights)


def dense_is_faster(rows: int, weights: Int8Weights) -> bool:
    """Return what `conv_is_faster` does for a dense layer of this number of rows."""
    return _is_faster(_dense_window(rows, weights.w.shape[1]), weights.w.shape[1], weights.w.shape[0], weights)


def _is_faster(window: _Window, run: int, filters: int, weights: Int8Weights) -> bool:
    centred = weights.centred()
    if centred.min() < -128 or centred.max() > 127:
        return False
    high, wide = window.out
    rows = (high - 1) * (window.padded[1] // window.stride[1]) + wide
    blocks = -(-filters // BLOCK)
    steps, words = (window.runs.size * -(-run // size) for size in (amx.ROW_BYTES, 4))
    tiles = -(-rows // PIXELS) * -(-blocks // 2) * (steps * _STEP_CYCLES + _BUFFER_CYCLES)
    vectors = high * wide * blocks * words / 2  # two of 16 words in a cycle
    return tiles < vectors


def _dense_window(rows: int, depth: int) -> _Window:
    return _Window("flat", depth, (1, rows), (1, 1), (1, 1), np.zeros(1, np.int64), (1, rows))


def conv_values(g: Geometry, step: int) -> dict[str, int]:
    """Return fields of the argument block that describe the input and the result of a convolution.

    Args:
        g: The geometry.
        step: Distance of the copied pixels in a row of the input.
    """
    image, blocks = math.prod(g.out), -(-g.filters // BLOCK)
    values = {"channels": g.channels, "high": g.height, "wide": g.width, "top": g.padding[0], "left": g.padding[1]}
    values |= {"copied": -(-g.width // step), "filters": blocks * BLOCK, "out_pixel": BLOCK}
    return values | {"out_image": blocks * image * BLOCK, "out_block": image * BLOCK}


def dense_values(rows: int, filters: int, depth: int) -> dict[str, int]:
    """Return what `conv_values` does for a dense layer."""
    values = {"filters": filters, "out_image": 0, "out_block": BLOCK, "out_pixel": filters, "x_group": 0}
    values |= {"copied": rows * depth, "rows": -(-rows * depth // BLOCK)}
    return values | dict.fromkeys(("channels", "high", "wide", "top", "left"), 0)


def prepare_conv(
    g: Geometry, weights: Int8Weights, rescaling: Rescaling, input_layout: Layout, *, threads: int, target: Target
) -> NativeCall:
    """Prepare a convolution; arguments as for `int8_conv.prepare_conv`, which has checked them.

    The weights minus their zero points are within -128 to 127.
    """
    window = _conv_window(g, input_layout)
    own = window.pixel // g.groups
    padded = np.zeros((g.filters, *g.kernel, own), np.int8)
    padded[..., : g.channels // g.groups] = weights.centred().transpose(0, 2, 3, 1)
    filters = g.filters // g.groups
    columns = 1 if filters <= BLOCK or (g.groups > 1 and filters % (2 * BLOCK)) else 2
    values = conv_values(g, window.step[1]) | {"rows": g.images * window.padded[0], "x_group": own}
    name = f"int8 conv {g.channels} to {g.filters}, {g.kernel[0]}x{g.kernel[1]}, tiles"
    rows = padded.reshape(g.filters, window.runs.size, -1)
    call = _Call(window, weights, rescaling, rows, columns, g.images, g.groups, threads, target)
    return call.prepare(values, name)


def prepare_dense(rows: int, weights: Int8Weights, rescaling: Rescaling, *, threads: int, target: Target) -> NativeCall:
    """Prepare a dense layer; arguments as for `int8_conv.prepare_dense`, and for `prepare_conv`."""
    filters, depth = weights.w.shape
    columns = 1 if filters <= BLOCK else 2
    centred = weights.centred()[:, None].astype(np.int8)
    window = _dense_window(rows, depth)
    call = _Call(window, weights, rescaling, centred, columns, 1, 1, threads, target)
    return call.prepare(dense_values(rows, filters, depth), f"int8 dense {depth} to {filters}, tiles")


@dataclass(frozen=True, eq=False)
class _Call:
    window: _Window
    weights: Int8Weights
    rescaling: Rescaling
    rows: np.ndarray  # of weights, int8 [F, runs, bytes of a run]
    columns: int
    images: int
    groups: int
    threads: int
    target: Target

    def prepare(self, values: dict[str, int], name: str) -> NativeCall:
        """Return the native call; `values` are those of its fields that depend on the kind of layer."""
        window, variant = self.window, AmxVariant(self.columns, self.window.input, self.rescaling.kind())
        w, steps = self._pack()
        places = window.places()
        tiles = -(-(int(places[-1]) + 1) // PIXELS)
        firsts = np.searchsorted(places, np.arange(tiles + 1) * PIXELS).astype(np.int64)
        rows = (places % PIXELS).astype(np.uint8)
        column_tiles = w.shape[0]
        constants = self.rescaling.constants(self.rows.shape[0], self.weights.bias_for(0), column_tiles * self.columns)
        image = math.prod(window.padded) * window.pixel
        # the last tile, and the last step of a run, read on beyond what the first stage has written
        last = (self.groups - 1) * values["x_group"] + (tiles * PIXELS - 1) * window.row + int(steps.max())
        size = max((self.images - 1) * image + last + amx.ROW_BYTES, self.images * image + amx.ROW_BYTES)
        values = {"residual": 0} | values | self.rescaling.fields() | self._tasks(tiles, column_tiles, values["rows"])
        values |= {"step_y": window.step[0], "step_x": window.step[1], "base": 0, "phases": window.stride[0]}
        blocks = 1 if window.input == "plain" else window.pixel // BLOCK
        values |= {"padding": self.weights.x_zero_point, "in_blocks": blocks, "in_pixel": window.pixel}
        values |= {"padded_high": window.padded[0], "padded_wide": window.padded[1]}
        values |= {"firsts": firsts.ctypes.data, "places": rows.ctypes.data}
        values |= {"steps": steps.ctypes.data, "step_count": steps.size, "x_row": window.row, "x_image": image}
        values |= {"w": w.ctypes.data, "w_tile": w[0].nbytes, "constants": constants.ctypes.data}
        operands = _OPERANDS if variant.requantization.residual else tuple(o for o in _OPERANDS if o != "residual")
        kernel, keep = jit.load(build, self.target, variant), (firsts, rows, steps, w, constants)
        return native_call(kernel, FIELDS, values, operands, workspace={"x": size}, keep=keep, name=name)

    def _pack(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights [column tiles, steps, 16, columns, 4], and the offset of each step."""
        filters, runs, length = self.rows.shape
        per_run, width = -(-length // amx.ROW_BYTES), self.columns * amx.ROWS
        tiles = -(-filters // width)
        padded = np.zeros((tiles * width, runs, per_run * amx.ROW_BYTES), np.int8)
        padded[:filters, :, :length] = self.rows
        by_tile = padded.reshape(tiles, width, runs * per_run, amx.QUADS, 4).transpose(0, 2, 3, 1, 4)
        packed = aligned(padded.size // 4).view(np.int8).reshape(by_tile.shape)
        packed[...] = by_tile
        steps = self.window.runs[:, None] + np.arange(per_run) * amx.ROW_BYTES
        return packed, steps.ravel().astype(np.int64)

    def _tasks(self, tiles: int, column_tiles: int, rows: int) -> dict[str, int]:
        """Return how the work is divided: chunks whose windows stay in the cache, and work for all threads."""
        most = max(1, _CHUNK_BYTES // (PIXELS * self.window.row * self.window.stride[0]))
        parts = self.images * column_tiles
        chunks = -(-self.threads * _TASKS_PER_THREAD // parts) if self.threads > 1 else 1
        chunk = max(1, min(most, -(-tiles // chunks)))
        chunks = -(-tiles // chunk)
        pads = min(rows, 1 if self.threads == 1 else _PAD_TASKS_PER_THREAD * self.threads)
        fields = {"tiles": tiles, "chunk": chunk, "chunks": chunks, "pads": pads, "column_tiles": column_tiles}
        return fields | {
            "group_tiles": column_tiles // self.groups,
            "tasks": pads + self.images * chunks * column_tiles,
        }
