"""Changes of the layout of activations as native calls, as `geometry.to_blocked` and `to_plain` define them.

A block of channels is a matrix of channels x pixels, which is transposed. Where there is a single pixel, rows of
channels are copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from llvmlite import ir

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.packing import transposer
from mlhood.kernels.codegen.remainder import load_first, store_first
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import TASK
from mlhood.kernels.native import NativeCall, native_call

SIZES: tuple[str, ...] = ("tasks", "planes", "plane_block", "blocks", "chunks", "chunk", "channels", "pixels")
FIELDS = (*SIZES, "x", "out")
BYTE_FIELDS = ("tasks", "blocks", "channels", "pixels", "x", "out")
COPY_FIELDS = ("tasks", "channels", "x", "x_row", "out", "out_row")
Direction = Literal["to_blocked", "to_plain"]


def prepare(shape: Sequence[int], direction: Direction, target: Target | None = None) -> NativeCall:
    """Return a call that copies "x" to "out": [N, C, H, W] and [N, ceil(C / lanes), H, W, lanes], or the reverse.

    Lanes beyond the last channel become zero.

    Args:
        shape: N, C, H and W.
        direction: "to_blocked" or "to_plain".
        target: The processor, which determines the lanes; this machine's by default.

    Raises:
        KernelError: If the shape does not have four dimensions.
    """
    target = target or host()
    if len(shape) != 4:
        raise KernelError("only activations of images have layouts", expected="[N, C, H, W]", got=list(shape))
    images, channels, high, wide = shape
    pixels, lanes = high * wide, target.lanes
    blocks = -(-channels // lanes)
    if pixels == 1:
        plain, blocked = channels, blocks * lanes
        strides = (plain, blocked) if direction == "to_blocked" else (blocked, plain)
        values = {"tasks": images, "channels": channels, "x_row": strides[0], "out_row": strides[1]}
        kernel = jit.load(build_copy, target, direction)
        return native_call(kernel, COPY_FIELDS, values, ("x", "out"), name=direction)
    chunk = min(max(pixels, 1), TASK // lanes)
    plane_block, chunks = max(1, TASK // lanes // chunk), -(-pixels // chunk)
    planes = images * blocks
    tasks = -(-planes // plane_block) * chunks
    sizes = (tasks, planes, plane_block, blocks, max(chunks, 1), chunk, channels, pixels)
    values = dict(zip(SIZES, sizes, strict=True))
    kernel = jit.load(build, target, direction)
    return native_call(kernel, FIELDS, values, ("x", "out"), name=direction)


def prepare_bytes(shape: Sequence[int], *, to_blocked: bool, target: Target | None = None) -> NativeCall:
    """Prepare the conversion of bytes [N, C, spatial...] to [N, ceil(C / 16), spatial..., 16], or back.

    Operands: `x` and `out`. Lanes of a blocked result beyond the channels are undefined.

    Args:
        shape: [N, C, spatial...].
        to_blocked: Direction.
        target: The processor; the host by default.
    """
    images, channels, *spatial = shape
    blocks = -(-channels // BLOCK)
    values = {"tasks": images * blocks, "blocks": blocks, "channels": channels, "pixels": math.prod(spatial)}
    name = f"int8 to {'blocked' if to_blocked else 'plain'}"
    kernel = jit.load(build_bytes, target or host(), to_blocked)
    return native_call(kernel, BYTE_FIELDS, values, ("x", "out"), name=name)


# -- the generated code


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
