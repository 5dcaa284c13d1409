"""Activations from the plain layout, [N, C, H, W], to the blocked one, [N, C / lanes, H, W, lanes], and back.

A block of channels is a matrix of channels x pixels, which is transposed. Where there is a single pixel, rows of
channels are copied.
"""

from __future__ import annotations

from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.remainder import load_first, store_first
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.codegen.transposition import transposer

SIZES: tuple[str, ...] = ("tasks", "planes", "plane_block", "blocks", "chunks", "chunk", "channels", "pixels")
FIELDS = (*SIZES, "x", "out")
BYTE_FIELDS = ("tasks", "blocks", "channels", "pixels", "x", "out")
COPY_FIELDS = ("tasks", "channels", "x", "x_row", "out", "out_row")

Direction = Literal["to_blocked", "to_plain"]


def build(target: Target, direction: Direction) -> str:
    """Return the LLVM IR of a kernel that transposes blocks of channels; a plane is one of them, of one image."""
    module, lanes = ir.Module(), target.lanes
    transpose = transposer(module, "transpose", target, pad=direction == "to_blocked")
    arguments = Arguments(FIELDS, module)
    code = arguments.code
    f = {name: arguments.integer(name) for name in FIELDS}
    x, out, blocks, pixels = arguments.pointer("x"), arguments.pointer("out"), f["blocks"], f["pixels"]
    with arguments.tasks(f["tasks"]) as task:
        first = task % f["chunks"] * f["chunk"]
        count = (pixels - first).minimum(f["chunk"])
        start = task // f["chunks"] * f["plane_block"]
        with code.loop(start, (start + f["plane_block"]).minimum(f["planes"])) as plane:
            channel = plane % blocks * lanes
            channels = (f["channels"] - channel).minimum(lanes)
            plain = (plane // blocks * f["channels"] + channel) * pixels + first
            blocked = (plane * pixels + first) * lanes
            if direction == "to_blocked":
                code.call(transpose, x.at(plain), pixels, channels, count, out.at(blocked), lanes)
            else:
                code.call(transpose, x.at(blocked), lanes, count, channels, out.at(plain), pixels)
    return arguments.finished()


def build_copy(target: Target, direction: Direction) -> str:
    """Return the LLVM IR of a kernel that copies the channels of images of one pixel, one image per task."""
    arguments, lanes = Arguments(COPY_FIELDS), target.lanes
    code, channels = arguments.code, arguments.integer("channels")
    with arguments.tasks(arguments.integer("tasks")) as image:
        x = arguments.pointer("x").at(image * arguments.integer("x_row"))
        out = arguments.pointer("out").at(image * arguments.integer("out_row"))
        full = channels - channels % lanes
        with code.loop(0, full, lanes) as channel:
            out.at(channel).store(x.at(channel).load(lanes))
        with code.builder.if_then(full < channels):
            last = load_first(code, x.at(full), channels - full, lanes)
            if direction == "to_blocked":
                out.at(full).store(last)
            else:
                store_first(code, out.at(full), last, channels - full, target)
    return arguments.finished()


def build_bytes(_: Target, to_blocked: bool) -> str:
    """Return the LLVM IR of a kernel that converts one block of 16 channels of bytes, of one image, per task.

    16 x 16 bytes are transposed in registers.
    """
    arguments = Arguments(BYTE_FIELDS)
    code = arguments.code
    f = {name: arguments.integer(name) for name in BYTE_FIELDS[:4]}
    plain, blocked = (arguments.pointer(name, BYTE) for name in (("x", "out") if to_blocked else ("out", "x")))
    with arguments.tasks(f["tasks"]) as task:
        image, first = task // f["blocks"], task % f["blocks"] * BLOCK
        planes = plain.at((image * f["channels"] + first) * f["pixels"])
        block = blocked.at(task * f["pixels"] * BLOCK)
        count = (f["channels"] - first).minimum(BLOCK)
        full = f["pixels"] // BLOCK * BLOCK
        squares = _bytes_to_blocked if to_blocked else _bytes_to_plain
        with code.loop(0, full, BLOCK) as pixel:
            squares(code, planes.at(pixel), block.at(pixel * BLOCK), f["pixels"], count)
        with code.loop(full, f["pixels"]) as pixel, code.loop(0, count) as channel:
            single, stored = planes.at(channel * f["pixels"] + pixel), block.at(pixel * BLOCK + channel)
            if to_blocked:
                stored.store(single.load())
            else:
                single.store(stored.load())
    return arguments.finished()


def _bytes_to_blocked(code: FunctionBuilder, planes: Pointer, block: Pointer, ld: Int, count: Int) -> None:
    """Convert 16 pixels; channels that do not exist become zero."""
    vector = ir.VectorType(BYTE, BLOCK)
    rows = [code.variable(vector, ir.Constant(vector, None)) for _ in range(BLOCK)]
    for channel, row in enumerate(rows):
        with code.builder.if_then(code.constant(channel) < count):
            row.set(planes.at(ld * channel).load(BLOCK))
    for pixel, column in enumerate(_transpose_bytes(code, [row.get() for row in rows])):
        block.at(pixel * BLOCK).store(column)


def _bytes_to_plain(code: FunctionBuilder, planes: Pointer, block: Pointer, ld: Int, count: Int) -> None:
    columns = _transpose_bytes(code, [block.at(pixel * BLOCK).load(BLOCK) for pixel in range(BLOCK)])
    for channel, column in enumerate(columns):
        with code.builder.if_then(code.constant(channel) < count):
            planes.at(ld * channel).store(column)


def _transpose_bytes(code: FunctionBuilder, rows: list[Any]) -> list[Any]:
    """Transpose 16 vectors of 16 bytes: four times, rows of one half are interleaved with those of the other."""
    for _ in range(4):
        pairs = zip(rows[: BLOCK // 2], rows[BLOCK // 2 :], strict=True)
        orders = [[lane for i in half for lane in (i, BLOCK + i)] for half in (range(8), range(8, 16))]
        rows = [code.shuffle(a, b, order) for a, b in pairs for order in orders]
    return rows
