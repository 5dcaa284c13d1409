"""The depthwise convolution of bytes as native code: each block of 16 channels is convolved by itself.

The input is padded and widened to 16 bits as in `int8_conv_kernel`. Two taps of the kernel are multiplied at a time:
their pixels are interleaved, channel by channel, and one instruction multiplies and adds each pair (`pmaddwd`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

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
from mlhood.kernels.codegen.target import Target

_TASKS = ("tasks", "chunks", "chunk", "pixel_count", "plane")
FIELDS = (*INPUT_FIELDS, *_TASKS, "pixels", "taps", "pairs", "w", "constants", "out", "residual", *OUTPUT_FIELDS)
_GROUP = 4  # 32-bit lanes of 128 bits, in which x86 interleaves 16-bit integers


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
