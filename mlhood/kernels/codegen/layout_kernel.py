"""Activations from the plain layout, [N, C, H, W], to the blocked one, [N, C / lanes, H, W, lanes], and back.

A block of channels is a matrix of channels x pixels, which is transposed. Where there is a single pixel, rows of
channels are copied.
"""

from __future__ import annotations

from typing import Literal

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments, kernel_function
from mlhood.kernels.codegen.remainder import load_first, store_first
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.codegen.transposition import transposer

SIZES: tuple[str, ...] = ("tasks", "planes", "plane_block", "blocks", "chunks", "chunk", "channels", "pixels")
FIELDS = (*SIZES, "x", "out")
COPY_FIELDS = ("tasks", "channels", "x", "x_row", "out", "out_row")

Direction = Literal["to_blocked", "to_plain"]


def build(target: Target, direction: Direction) -> str:
    """Return the LLVM IR of a kernel that transposes blocks of channels; a plane is one of them, of one image."""
    module, lanes = ir.Module(), target.lanes
    transpose = transposer(module, "transpose", target, pad=direction == "to_blocked")
    code = kernel_function(module)
    arguments = Arguments(code, FIELDS)
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
    code.ret()
    return str(module)


def build_copy(target: Target, direction: Direction) -> str:
    """Return the LLVM IR of a kernel that copies the channels of images of one pixel, one image per task."""
    module, lanes = ir.Module(), target.lanes
    code = kernel_function(module)
    arguments = Arguments(code, COPY_FIELDS)
    channels = arguments.integer("channels")
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
    code.ret()
    return str(module)
