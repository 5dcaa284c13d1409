"""Convolutions and dense layers of bytes, prepared once: weights packed, zero points folded in, kernel compiled.

Activations are bytes, plain [N, C, H, W] or, on every processor, blocked [N, ceil(C / 16), H, W, 16]; `to_blocked` and
`to_plain` of `mlhood.kernels.geometry` convert them. Results of convolutions are blocked; the lanes of their last block
beyond the channels are undefined, and are not used by any kernel. Layers that AMX tiles compute faster are those of
`mlhood.kernels.int8_tiles`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import int8_tiles
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.int8_conv_kernel import FIELDS, Int8Variant, build
from mlhood.kernels.codegen.int8_input import Input
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.geometry import Geometry, Layout
from mlhood.kernels.int8_weights import Int8Weights, Words, choose_words
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.requantize import Rescaling

_SLACK = 64  # bytes that the last word of a segment may read beyond it, times weights that are zero
_CHUNK_BYTES = (
    192 * 1024
)  # of the workspace: reused for all output channels, so it should stay in the second-level cache
_TASKS_PER_THREAD = 8
_PAD_TASKS_PER_THREAD = 4
_OPERANDS = ("source", "out", "residual", "x")


@dataclass(frozen=True)
class _Window:
    """Where the workspace holds the input, and which runs of it are a window.

    Args:
        input: Kind of the input.
        blocks: Blocks of channels, each a plane.
        pixel: Elements of a pixel in a plane.
        padded: Height and width of a plane.
        stride: Between windows, vertical and horizontal.
        step: Distance of the copied pixels in the input.
        segments: Offset of each segment in elements.
    """

    input: Input
    blocks: int
    pixel: int
    padded: tuple[int, int]
    stride: tuple[int, int]
    step: tuple[int, int]
    segments: np.ndarray


def prepare_conv(
    g: Geometry,
    weights: Int8Weights,
    rescaling: Rescaling,
    input_layout: Layout = "blocked",
    *,
    threads: int = 1,
    target: Target | None = None,
) -> NativeCall:
    """Prepare a convolution of bytes; its result is blocked.

    Operands: `source`, the input in its layout; `out`, blocked; `residual`, blocked like the result, if the rescaling
    has a second term; `x`, a workspace.

    Args:
        g: The geometry; its padding has the value of the zero point.
        weights: [F, C / groups, KH, KW].
        rescaling: How sums become bytes, by filter; the result's element type is that of the input.
        input_layout: Layout of the input.
        threads: Number of threads that will run it.
        target: The processor; the host by default.

    Raises:
        KernelError: Groups do not consist of whole blocks of channels.
    """
    if g.groups > 1 and (g.channels // g.groups % BLOCK or g.filters // g.groups % BLOCK):
        expected = f"multiples of {BLOCK} channels and filters per group"
        raise KernelError("a block of channels would span two groups", expected=expected, got=g)
    target = target or host()
    if target.tiles and int8_tiles.conv_is_faster(g, weights, input_layout):
        return int8_tiles.prepare_conv(g, weights, rescaling, input_layout, threads=threads, target=target)
    high, wide = g.out
    window = _conv_window(g, input_layout)
    rows = _conv_rows(weights.centred(), g, window)
    words = choose_words(target, weights, rows, rescaling.signed)
    per_image = g.channels // window.pixel if g.groups > 1 else window.blocks
    columns = _offsets(g, window)
    plan = _plan(target, high * wide, g.groups, words, rows, rescaling, window.input)
    group = per_image // g.groups * math.prod(window.padded) * window.pixel * plan.element_bytes
    values = int8_tiles.conv_values(g, window.step[1])
    values |= {"rows": g.images * window.blocks * window.padded[0], "x_group": group}
    name = f"int8 conv {g.channels} to {g.filters}, {g.kernel[0]}x{g.kernel[1]}"
    return _call(plan, window, weights, rescaling, columns, values, g.images, threads, name)


def prepare_dense(
    rows: int,
    weights: Int8Weights,
    rescaling: Rescaling,
    *,
    threads: int = 1,
    target: Target | None = None,
) -> NativeCall:
    """Prepare a dense layer of bytes: x [rows, K] times w [F, K] transposed, as [rows, F].

    Operands: `source`, `out`, `residual` [rows, F] if the rescaling has a second term; `x`, a workspace. Arguments are
    those of `prepare_conv`.
    """
    target = target or host()
    if target.tiles and int8_tiles.dense_is_faster(rows, weights):
        return int8_tiles.prepare_dense(rows, weights, rescaling, threads=threads, target=target)
    filters, depth = weights.w.shape
    centred = weights.centred()[:, None]
    words = choose_words(target, weights, centred, rescaling.signed)
    window = _Window("flat", 1, depth, (1, rows), (1, 1), (1, 1), np.zeros(1, np.int64))
    plan = _plan(target, rows, 1, words, centred, rescaling, "flat")
    offsets = np.arange(rows, dtype=np.int64) * depth
    values = int8_tiles.dense_values(rows, filters, depth)
    name = f"int8 dense {depth} to {filters}"
    return _call(plan, window, weights, rescaling, offsets, values, 1, threads, name)


# -- windows


def _conv_window(g: Geometry, layout: Layout) -> _Window:
    pixel = min(g.channels, BLOCK) if layout == "plain" else BLOCK
    blocks = -(-g.channels // pixel)
    subsampled = g.kernel == (1, 1) and not any(g.padding)
    padded, stride, step = (g.out, (1, 1), g.stride) if subsampled else (g.padded, g.stride, (1, 1))
    plane = math.prod(padded)
    rows = np.arange(g.kernel[0]) * g.dilation[0] * padded[1]
    columns = np.arange(g.kernel[1]) * g.dilation[1]
    if blocks == 1 and g.dilation[1] == 1:  # the pixels of a kernel's row are adjacent
        columns = columns[:1]
    own = blocks // g.groups
    segments = (np.arange(own)[:, None, None] * plane + rows[:, None] + columns).ravel() * pixel
    return _Window(layout, blocks, pixel, padded, stride, step, segments.astype(np.int64))


def _offsets(g: Geometry, window: _Window) -> np.ndarray:
    """Return the offset of each output pixel's window in a plane, in elements."""
    y, x = np.ogrid[: g.out[0], : g.out[1]]
    return ((y * window.stride[0] * window.padded[1] + x * window.stride[1]) * window.pixel).ravel().astype(np.int64)


def _conv_rows(w: np.ndarray, g: Geometry, window: _Window) -> np.ndarray:
    """Return the weights as [F, segments, elements of a segment]."""
    filters, channels = w.shape[:2]
    blocks = -(-channels // window.pixel)
    padded = np.zeros((filters, blocks * window.pixel, *g.kernel), w.dtype)
    padded[:, :channels] = w
    by_pixel = padded.reshape(filters, blocks, window.pixel, *g.kernel).transpose(0, 1, 3, 4, 2)
    return by_pixel.reshape(filters, window.segments.size, -1)


# -- the plan


@dataclass(frozen=True)
class _Plan:
    variant: Int8Variant
    target: Target
    words: Words
    pixels: int
    groups: int
    weights: np.ndarray  # [column tiles, words, columns, elements of a word]
    used: np.ndarray  # which words of the segments have a weight, bool [segments, words of a segment]

    @property
    def column_tiles(self) -> int:
        """Number of tiles of output channels."""
        return self.weights.shape[0]

    @property
    def tile_blocks(self) -> int:
        """Blocks of 16 channels of a tile."""
        return self.weights.shape[2] // BLOCK

    @property
    def element_bytes(self) -> int:
        """Size of an element of the workspace."""
        return 4 // self.words.elements


def _plan(
    target: Target, pixels: int, groups: int, words: Words, rows: np.ndarray, rescaling: Rescaling, kind: Input
) -> _Plan:
    """Return the plan for weights [F, segments, elements of a segment]."""
    filters, segments, elements = rows.shape
    tile_rows, vectors = choose_tile(target, pixels, -(-filters // BLOCK) if groups == 1 else 1)
    quads = words.elements == 4
    narrow = not quads and int(rows.min()) >= -128 and int(rows.max()) <= 127
    variant = Int8Variant(tile_rows, vectors, kind, quads, narrow, rescaling.kind())
    columns, count = vectors * target.lanes, -(-elements // words.elements)
    tiles = -(-filters // columns)
    packed = np.zeros((tiles * columns, segments, count * words.elements), np.int8 if quads or narrow else np.int16)
    packed[:filters, :, :elements] = rows
    by_tile = packed.reshape(tiles, columns, segments, count, words.elements).transpose(0, 2, 3, 1, 4)
    used = np.asarray(by_tile.any(axis=(0, 3, 4)))  # of a block that is not full, some words have no channel
    return _Plan(variant, target, words, pixels, groups, np.ascontiguousarray(by_tile[:, used]), used)


@functools.cache
def choose_tile(target: Target, pixels: int, blocks: int) -> tuple[int, int]:
    """Return the rows and vectors of the tile that covers a result in the fewest cycles.

    Args:
        target: The processor.
        pixels: Rows of the result.
        blocks: Blocks of 16 columns.
    """
    options = []
    for count in (1, 2, 4):
        vectors = count * BLOCK // target.lanes
        for rows in range(1, min(pixels, 30) + 1):
            # LLVM loads all rows' words before it multiplies: without a register for each, it would spill sums
            registers = rows * (vectors + 1) + vectors if target.dot else (rows + 1) * vectors + 2
            if registers <= target.registers:
                # a multiplication and an addition each, a widening for each vector of weights; and the loop itself
                cycles = (2 * rows * vectors + vectors) / 4 + 1
                if target.dot:  # one instruction for all, and two loads a cycle
                    cycles = max(rows * vectors, rows + vectors) / 2 + 1
                options.append((-(-pixels // rows) * -(-blocks // count) * cycles, -rows * vectors, rows, vectors))
    return min(options)[2:]


def _call(
    plan: _Plan,
    window: _Window,
    weights: Int8Weights,
    rescaling: Rescaling,
    offsets: np.ndarray,
    values: dict[str, int],
    images: int,
    threads: int,
    name: str,
) -> NativeCall:
    variant, size = plan.variant, plan.element_bytes
    bias = weights.bias_for(plan.words.base)
    constants = rescaling.constants(weights.w.shape[0], bias, plan.column_tiles * plan.tile_blocks)
    words = (window.segments[:, None] * size + np.arange(plan.used.shape[1]) * 4)[plan.used].astype(np.int32)
    pixels = offsets * size
    chunk = _chunk(plan, window, images, threads)
    chunks = -(-plan.pixels // chunk)
    image = window.blocks * math.prod(window.padded) * window.pixel * size
    pads = min(values["rows"], 1 if threads == 1 else _PAD_TASKS_PER_THREAD * threads)
    values = values | rescaling.fields()
    values |= {"step_y": window.step[0], "step_x": window.step[1], "base": plan.words.base}
    values |= {"padding": weights.x_zero_point - plan.words.base}
    values |= {"in_blocks": window.blocks, "in_pixel": window.pixel}
    values |= {"padded_high": window.padded[0], "padded_wide": window.padded[1], "pads": pads}
    values |= {"tasks": pads + images * chunks * plan.column_tiles, "chunks": chunks, "chunk": chunk}
    values |= {"pixel_count": plan.pixels, "column_tiles": plan.column_tiles}
    values |= {"group_tiles": plan.column_tiles // plan.groups}
    values |= {"pixels": pixels.ctypes.data, "words": words.ctypes.data, "word_count": words.size, "x_image": image}
    values |= {"w": plan.weights.ctypes.data, "w_tile": plan.weights[0].nbytes, "constants": constants.ctypes.data}
    operands = _OPERANDS if variant.requantization.residual else tuple(o for o in _OPERANDS if o != "residual")
    values = {"residual": 0} | values
    kernel = jit.load(build, plan.target, variant)
    keep = (pixels, words, plan.weights, constants)
    workspace = {"x": images * image + _SLACK}
    return native_call(kernel, FIELDS, values, operands, workspace=workspace, keep=keep, name=name)


def _chunk(plan: _Plan, window: _Window, images: int, threads: int) -> int:
    """Return the pixels of a task: their windows stay in the cache, and all threads have work."""
    rows = plan.variant.rows
    per_pixel = window.blocks * window.pixel * plan.element_bytes * math.prod(window.stride)
    most = max(1, _CHUNK_BYTES // (per_pixel * rows))
    parts = images * plan.column_tiles
    chunks = -(-threads * _TASKS_PER_THREAD // parts) if threads > 1 else 1
    return rows * max(1, min(most, -(-plan.pixels // (rows * chunks))))
