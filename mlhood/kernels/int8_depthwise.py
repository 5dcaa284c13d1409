"""Depthwise convolutions of bytes in the blocked layout: each block of 16 channels is convolved by itself.

The input is padded and widened to 16 bits as in `int8_conv`. Two taps of the kernel are multiplied at a time: their
pixels are interleaved, channel by channel, and one instruction multiplies and adds each pair (`pmaddwd`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.dot_products import dot_pairs
from mlhood.kernels.codegen.int8_input import INPUT_FIELDS, SHORT, InputStage
from mlhood.kernels.codegen.ir_builder import BYTE, INDEX, INT32, FunctionBuilder, Int
from mlhood.kernels.codegen.requantize import (
    BLOCK,
    OUTPUT_FIELDS,
    Requantization,
    Requantizer,
    concatenate,
    read_output,
)
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.int8_tiles import conv_values
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.requantize import Rescaling

_ROWS = 4  # pixels that share a load of the weights
_TASKS_PER_THREAD = 8
_PAD_TASKS_PER_THREAD = 4
_TASKS = ("tasks", "chunks", "chunk", "pixel_count", "plane")
FIELDS = (*INPUT_FIELDS, *_TASKS, "pixels", "taps", "pairs", "w", "constants", "out", "residual", *OUTPUT_FIELDS)
_GROUP = 4  # 32-bit lanes of 128 bits, in which x86 interleaves 16-bit integers


def prepare_depthwise(
    g: Geometry, weights: Int8Weights, rescaling: Rescaling, *, threads: int = 1, target: Target | None = None
) -> NativeCall:
    """Prepare a convolution of each channel by itself; input and result are blocked.

    Operands: `source`, `out`, `residual` if the rescaling has a second term; `x`, a workspace.

    Args:
        g: The geometry, with as many groups and filters as channels.
        weights: [C, 1, KH, KW].
        rescaling: How sums become bytes, by channel; the result's element type is that of the input.
        threads: Number of threads that will run it.
        target: The processor; the host by default.
    """
    target = target or host()
    blocks, pixel_count = -(-g.channels // BLOCK), math.prod(g.out)
    planes, plane = g.images * blocks, math.prod(g.padded) * BLOCK
    packed, constants = _pack(g, weights, target), rescaling.constants(g.channels, weights.bias)
    taps, pixels = _taps(g), _pixels(g)
    rows = min(_ROWS, pixel_count)
    chunk = rows * -(-pixel_count // (rows * max(1, min(threads * _TASKS_PER_THREAD // planes, pixel_count // rows))))
    chunks = -(-pixel_count // chunk)
    pads = min(planes * g.padded[0], 1 if threads == 1 else _PAD_TASKS_PER_THREAD * threads)
    values = conv_values(g, 1) | {"step_y": 1, "step_x": 1, "padded_high": g.padded[0], "padded_wide": g.padded[1]}
    values |= {"base": weights.x_zero_point, "padding": 0, "in_blocks": blocks, "in_pixel": BLOCK}
    values |= {"pads": pads, "rows": planes * g.padded[0], "tasks": pads + planes * chunks, "chunks": chunks}
    values |= {"chunk": chunk, "pixel_count": pixel_count, "plane": plane, "pairs": taps.size // 2}
    values |= {"pixels": pixels.ctypes.data, "taps": taps.ctypes.data, "w": packed.ctypes.data, "residual": 0}
    values |= {"constants": constants.ctypes.data, **rescaling.fields()}
    kind = rescaling.kind()
    operands = ("source", "out", "x", *(("residual",) if kind.residual else ()))
    keep = (pixels, taps, packed, constants)
    name = f"int8 depthwise {g.channels}, {g.kernel[0]}x{g.kernel[1]}"
    kernel = jit.load(build, target, rows, kind)
    return native_call(kernel, FIELDS, values, operands, workspace={"x": planes * plane * 2}, keep=keep, name=name)


def _pack(g: Geometry, weights: Int8Weights, target: Target) -> np.ndarray:
    """Return the weights as int16 [blocks, pairs of taps, 16 channels in the kernel's order, 2]."""
    blocks, count = -(-g.channels // BLOCK), math.prod(g.kernel)
    padded = np.zeros((blocks * BLOCK, count + count % 2), np.int16)
    padded[: g.channels, :count] = weights.centred().reshape(g.channels, count)
    by_pair = padded.reshape(blocks, BLOCK, -1, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(by_pair[:, :, channel_order(target.lanes)])


def _taps(g: Geometry) -> np.ndarray:
    """Return the offset of each tap from a window's first one, int64, an even number; a last one repeats the first."""
    y, x = np.ogrid[: g.kernel[0], : g.kernel[1]]
    taps = ((y * g.dilation[0] * g.padded[1] + x * g.dilation[1]) * BLOCK).ravel().astype(np.int64)
    return np.append(taps, taps[:1]) if taps.size % 2 else taps


def _pixels(g: Geometry) -> np.ndarray:
    """Return the offset of each result's window in a padded plane, int64."""
    y, x = np.ogrid[: g.out[0], : g.out[1]]
    return ((y * g.stride[0] * g.padded[1] + x * g.stride[1]) * BLOCK).ravel().astype(np.int64)


# -- the generated code


def channel_order(lanes: int) -> list[int]:
    """Return which channel each lane of the sums has: with 8 lanes, the order that is cheap to interleave."""
    groups = range(0, BLOCK, _GROUP) if lanes != 8 else (0, 8, 4, 12)
    return [first + i for first in groups for i in range(_GROUP)]


def build(target: Target, rows: int, requantization: Requantization) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        rows: Pixels of a tile.
        requantization: How sums become bytes.
    """
    arguments = Arguments(FIELDS)
    stage = InputStage(arguments, "blocked", signed=requantization.signed)
    with arguments.tasks(arguments.integer("tasks")) as task:
        pads = arguments.integer("pads")
        with arguments.code.builder.if_else(task < pads) as (pad, convolve):
            with pad:
                stage.fill(task)
            with convolve:
                arguments.wait_for(pads)
                _chunk(arguments, task - pads, rows, requantization, target)
    return arguments.finished()


def _chunk(arguments: Arguments, task: Int, rows: int, kind: Requantization, target: Target) -> None:
    """Compute a chunk of pixels of one block of channels of one image."""
    code = arguments.code
    f = {name: arguments.integer(name) for name in ("chunks", "chunk", "pixel_count", "plane", "in_blocks", "pairs")}
    plane, chunk = task // f["chunks"], task % f["chunks"]
    block = plane % f["in_blocks"]
    constants = arguments.pointer("constants", INDEX).at(block * kind.sections["end"])
    requantizer = Requantizer(code, kind, constants, target.lanes, read_output(arguments.integer))
    x = arguments.pointer("x", SHORT).at(plane * f["plane"])
    w = arguments.pointer("w", SHORT).at(block * f["pairs"] * (2 * BLOCK))
    out, residual = (arguments.pointer(name, BYTE).at(plane * f["pixel_count"] * BLOCK) for name in ("out", "residual"))
    pixels, start = arguments.pointer("pixels", INDEX), chunk * f["chunk"]
    stop = (start + f["chunk"]).minimum(f["pixel_count"])
    with code.loop(start, stop, rows) as first:
        pixel = first.minimum(f["pixel_count"] - rows)
        windows = [x.at(pixels.at(pixel + m).load_int()) for m in range(rows)]
        sums = _sums(code, windows, w, arguments, target)
        for m, totals in enumerate(sums):
            address = (pixel + m) * BLOCK
            z = residual.at(address).load(BLOCK) if kind.residual else None
            out.at(address).store(requantizer.bytes_of(_in_order(code, requantizer, totals, target), z))


def _sums(code: FunctionBuilder, windows: list[Any], w: Any, arguments: Arguments, target: Target) -> list[list[Any]]:
    """Return the sums of products of each pixel, its channels in `channel_order`."""
    lanes, order = target.lanes, channel_order(target.lanes)
    kind = ir.VectorType(INT32, lanes)
    sums = [[code.variable(kind, ir.Constant(kind, None)) for _ in range(BLOCK // lanes)] for _ in windows]
    taps = arguments.pointer("taps", INDEX)
    with code.loop(0, arguments.integer("pairs")) as pair:
        offsets = [taps.at(pair * 2 + i).load_int() for i in (0, 1)]
        weights = [w.at(pair * (2 * BLOCK) + 2 * v * lanes).load(2 * lanes) for v in range(BLOCK // lanes)]
        for window, row in zip(windows, sums, strict=True):
            first, second = (window.at(offset).load(BLOCK) for offset in offsets)
            for v, total in enumerate(row):
                channels = order[v * lanes : (v + 1) * lanes]
                both = code.shuffle(first, second, [i for c in channels for i in (c, BLOCK + c)])
                total.set(dot_pairs(code, both, weights[v], total.get()))
    return [[total.get() for total in row] for row in sums]


def _in_order(code: FunctionBuilder, requantizer: Requantizer, totals: list[Any], target: Target) -> list[Any]:
    """Return the sums in the order of channels, with the bias added."""
    lanes, order = target.lanes, channel_order(target.lanes)
    everything = concatenate(code, totals)
    ordered = []
    for v in range(BLOCK // lanes):
        positions = [order.index(channel) for channel in range(v * lanes, (v + 1) * lanes)]
        vector = code.shuffle(everything, everything, positions)
        ordered.append(code.builder.add(vector, requantizer.bias(v)))
    return ordered
