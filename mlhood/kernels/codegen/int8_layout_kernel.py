"""Bytes from [N, C, pixels] to [N, ceil(C / 16), pixels, 16] and back: 16 x 16 of them are transposed in registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments, kernel_function
from mlhood.kernels.codegen.ir_builder import BYTE, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target

FIELDS = ("tasks", "blocks", "channels", "pixels", "x", "out")


def build(_: Target, to_blocked: bool) -> str:
    """Return the LLVM IR of a kernel that converts one block of channels of one image per task."""
    module = ir.Module()
    code = kernel_function(module)
    arguments = Arguments(code, FIELDS)
    f = {name: arguments.integer(name) for name in FIELDS[:4]}
    plain, blocked = (arguments.pointer(name, BYTE) for name in (("x", "out") if to_blocked else ("out", "x")))
    with arguments.tasks(f["tasks"]) as task:
        image, first = task // f["blocks"], task % f["blocks"] * BLOCK
        planes = plain.at((image * f["channels"] + first) * f["pixels"])
        block = blocked.at(task * f["pixels"] * BLOCK)
        count = (f["channels"] - first).minimum(BLOCK)
        full = f["pixels"] // BLOCK * BLOCK
        squares = _to_blocked if to_blocked else _to_plain
        with code.loop(0, full, BLOCK) as pixel:
            squares(code, planes.at(pixel), block.at(pixel * BLOCK), f["pixels"], count)
        with code.loop(full, f["pixels"]) as pixel, code.loop(0, count) as channel:
            single, stored = planes.at(channel * f["pixels"] + pixel), block.at(pixel * BLOCK + channel)
            if to_blocked:
                stored.store(single.load())
            else:
                single.store(stored.load())
    code.ret()
    return str(module)


def _to_blocked(code: FunctionBuilder, planes: Pointer, block: Pointer, ld: Int, count: Int) -> None:
    """Convert 16 pixels; channels that do not exist become zero."""
    vector = ir.VectorType(BYTE, BLOCK)
    rows = [code.variable(vector, ir.Constant(vector, None)) for _ in range(BLOCK)]
    for channel, row in enumerate(rows):
        with code.builder.if_then(code.constant(channel) < count):
            row.set(planes.at(ld * channel).load(BLOCK))
    for pixel, column in enumerate(_transpose(code, [row.get() for row in rows])):
        block.at(pixel * BLOCK).store(column)


def _to_plain(code: FunctionBuilder, planes: Pointer, block: Pointer, ld: Int, count: Int) -> None:
    columns = _transpose(code, [block.at(pixel * BLOCK).load(BLOCK) for pixel in range(BLOCK)])
    for channel, column in enumerate(columns):
        with code.builder.if_then(code.constant(channel) < count):
            planes.at(ld * channel).store(column)


def _transpose(code: FunctionBuilder, rows: list[Any]) -> list[Any]:
    """Transpose 16 vectors of 16 bytes: four times, rows of one half are interleaved with those of the other."""
    for _ in range(4):
        pairs = zip(rows[: BLOCK // 2], rows[BLOCK // 2 :], strict=True)
        orders = [[lane for i in half for lane in (i, BLOCK + i)] for half in (range(8), range(8, 16))]
        rows = [code.shuffle(a, b, order) for a, b in pairs for order in orders]
    return rows
