"""The convolution of bytes as native code, exact: sums of products in 32 bits, requantised to bytes.

A first stage copies the input into a workspace where it is padded, and widened to 16 bits with its zero point
subtracted: two channels are a word, and one instruction multiplies two pairs in every lane and adds both products
(`pmaddwd` on x86); nothing saturates. Widening costs one pass over the input, and every element of it is used by all
filters. With VNNI the workspace holds unsigned bytes, four channels a word, and the zero point is in the bias; so it
does with AVX2 where no sum of two products can leave 16 bits (`pmaddubsw`), whatever the input.

A tile is `rows` pixels of the result times `vectors` vectors of output channels. A window is a list of segments: runs
of words that are adjacent in the workspace, so any kernel size, dilation and stride is the same loop. Each row of the
tile has the address of its own window, so pixels of several rows of the image share a tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.dot_products import dot, dot_pairs, dot_saturating
from mlhood.kernels.codegen.int8_input import INPUT_FIELDS, SHORT, Input, InputStage
from mlhood.kernels.codegen.ir_builder import ADDRESS, BYTE, INDEX, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.requantize import (
    BLOCK,
    OUTPUT_FIELDS,
    Requantization,
    Requantizer,
    copy_bytes,
    extend_bytes,
    read_output,
)
from mlhood.kernels.codegen.target import Target

_TASKS = ("tasks", "chunks", "chunk", "pixel_count", "column_tiles", "group_tiles")
_WINDOWS = ("pixels", "words", "word_count", "x_image", "x_group", "w", "w_tile", "constants")
_RESULT = ("out", "residual", "filters", "out_image", "out_block", "out_pixel")
FIELDS = (*INPUT_FIELDS, *_TASKS, *_WINDOWS, *_RESULT, *OUTPUT_FIELDS)


@dataclass(frozen=True)
class Int8Variant:
    """A variant of the convolution of bytes.

    Args:
        rows: Pixels of a tile.
        vectors: Vectors of output channels of a tile; whole blocks of 16 channels.
        input: `plain` [N, C, H, W], `blocked` [N, C / 16, H, W, 16] or `flat`, rows that are copied as they are.
        quads: Whether a word is four bytes, which needs VNNI, or AVX2 and small products, else two 16-bit integers.
        narrow: Whether the weights of 16-bit words are stored as bytes.
        requantization: How sums become bytes.
    """

    rows: int
    vectors: int
    input: Input
    quads: bool
    narrow: bool
    requantization: Requantization


def build(target: Target, variant: Int8Variant) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    tile = _tile(module, variant, target)
    arguments = Arguments(FIELDS, module)
    signed = variant.requantization.signed
    loops = _LoopNest(arguments, variant, target, tile)
    with arguments.tasks(arguments.integer("tasks")) as task:
        pads = arguments.integer("pads")
        with arguments.code.builder.if_else(task < pads) as (pad, convolve):
            with pad:
                InputStage(arguments, variant.input, signed=signed, bytes=variant.quads).fill(task)
            with convolve:
                arguments.wait_for(pads)
                loops.convolve(task - pads)
    return arguments.finished()


# -- the tile

_TILE_PARAMETERS = {
    "x": ADDRESS,  # the windows of pixel 0
    "pixels": ADDRESS,  # offsets of the windows of this tile's pixels, in bytes
    "words": ADDRESS,  # offsets of a window's words, int32, in bytes
    "count": INDEX,  # number of words
    "w": ADDRESS,
    "constants": ADDRESS,
    "out": ADDRESS,
    "residual": ADDRESS,
    "filters": INDEX,  # channels of the result that are stored
    "out_block": INDEX,
    "out_pixel": INDEX,
    **dict.fromkeys(OUTPUT_FIELDS, INDEX),
}


def _tile(module: ir.Module, variant: Int8Variant, target: Target) -> FunctionBuilder:
    """Add a function that computes one tile."""
    code = FunctionBuilder(module, "tile", _TILE_PARAMETERS, public=False)
    lanes, blocks = target.lanes, variant.vectors * target.lanes // BLOCK
    kind, output = variant.requantization, read_output(code.integer)
    size = kind.sections["end"]
    requantizers = [
        Requantizer(code, kind, code.pointer("constants", INDEX).at(size * block), lanes, output)
        for block in range(blocks)
    ]
    per_block = BLOCK // lanes
    sums = [
        [
            code.variable(ir.VectorType(INT32, lanes), requantizers[v // per_block].bias(v % per_block))
            for v in range(variant.vectors)
        ]
        for _ in range(variant.rows)
    ]
    _accumulate(code, variant, sums, target)
    buffers = code.buffer(variant.rows * BLOCK, BYTE), code.buffer(variant.rows * BLOCK, BYTE)
    for block, requantizer in enumerate(requantizers):
        stored = code.integer("filters") - block * BLOCK
        with code.builder.if_then(code.constant(0) < stored):
            totals = [[total.get() for total in row[block * per_block : (block + 1) * per_block]] for row in sums]
            _store_block(code, requantizer, totals, code.integer("out_block") * block, stored, buffers)
    code.ret()
    return code


def _store_block(
    code: FunctionBuilder,
    requantizer: Requantizer,
    totals: list[list[Any]],
    offset: Int,
    stored: Int,
    buffers: tuple[Pointer, Pointer],
) -> None:
    """Requantise and store a block of 16 channels of all pixels; one that is not full goes through a buffer."""
    b, step = code.builder, code.integer("out_pixel")
    out, residual = (code.pointer(name, BYTE).at(offset) for name in ("out", "residual"))
    partial = stored < BLOCK
    if requantizer.kind.residual:
        with b.if_then(partial):
            for m in range(len(totals)):
                copy_bytes(code, buffers[1].at(m * BLOCK), residual.at(step * m), stored)
    ld = code.constant(BLOCK).where(partial, step)
    if_partial = [
        Pointer(b, b.select(partial, buffer.value, memory.value), BYTE)
        for buffer, memory in zip(buffers, (out, residual), strict=True)
    ]
    target, z = if_partial
    for m, row in enumerate(totals):
        term = z.at(ld * m).load(BLOCK) if requantizer.kind.residual else None
        target.at(ld * m).store(requantizer.bytes_of(row, term))
    with b.if_then(partial):
        for m in range(len(totals)):
            copy_bytes(code, out.at(step * m), buffers[0].at(m * BLOCK), stored)


def _accumulate(code: FunctionBuilder, variant: Int8Variant, sums: list[list[Any]], target: Target) -> None:
    lanes, b = target.lanes, code.builder
    x, pixels = code.pointer("x", BYTE), code.pointer("pixels", INDEX)
    windows = [x.at(pixels.at(m).load_int()) for m in range(variant.rows)]
    w = code.variable(INDEX, b.ptrtoint(code.parameters["w"], INDEX))
    element = BYTE if variant.narrow or variant.quads else SHORT
    per_word = 4 if variant.quads else 2
    vector_bytes = lanes * per_word * element.width // 8
    with code.loop(0, code.integer("count")) as k:
        word = Int(b, b.sext(code.pointer("words", INT32).at(k).load(), INDEX))
        weights = Pointer(b, b.inttoptr(w.get(), ADDRESS), BYTE)
        vectors = []
        for v in range(variant.vectors):
            stored = weights.at(v * vector_bytes).cast(element).load(lanes * per_word)
            vector = extend_bytes(code, stored, True, 16) if variant.narrow else stored
            vectors.append(b.bitcast(vector, ir.VectorType(INT32, lanes)))
        for window, row in zip(windows, sums, strict=True):
            factor = code.splat(window.at(word).cast(INT32).load(), lanes)
            for total, vector in zip(row, vectors, strict=True):
                total.set(
                    code.in_order(_multiply_add(code, variant, factor, vector, total.get(), target), target.constraint)
                )
        w.set(b.add(w.get(), INDEX(variant.vectors * vector_bytes)))


def _multiply_add(
    code: FunctionBuilder, variant: Int8Variant, factor: Any, vector: Any, total: Any, target: Target
) -> Any:
    if not variant.quads:
        return dot_pairs(code, factor, vector, total)
    return (dot if target.dot else dot_saturating)(code, factor, vector, total)


# -- the loops


class _LoopNest:
    def __init__(self, arguments: Arguments, variant: Int8Variant, target: Target, tile: FunctionBuilder) -> None:
        self.code, self.arguments, self.variant = arguments.code, arguments, variant
        self.target, self.tile = target, tile
        self.field = {name: arguments.integer(name) for name in FIELDS}

    def convolve(self, task: Int) -> None:
        """Compute a chunk of pixels of one tile of output channels, of one image."""
        f, v, code = self.field, self.variant, self.code
        columns, rest = task % f["column_tiles"], task // f["column_tiles"]
        chunk, image = rest % f["chunks"], rest // f["chunks"]
        group = columns // f["group_tiles"]
        blocks = v.vectors * self.target.lanes // BLOCK
        pointer = self.arguments.pointer
        x = pointer("x", BYTE).at(image * f["x_image"] + group * f["x_group"])
        w = pointer("w", BYTE).at(columns * f["w_tile"])
        constants = pointer("constants", INDEX).at(columns * (blocks * v.requantization.sections["end"]))
        base = image * f["out_image"] + columns * f["out_block"] * blocks
        filters = f["filters"] - columns * (blocks * BLOCK)
        last = f["pixel_count"] - v.rows
        stop = (chunk * f["chunk"] + f["chunk"]).minimum(f["pixel_count"])
        with code.loop(chunk * f["chunk"], stop, v.rows) as first:
            pixel = first.minimum(last)
            offset = base + pixel * f["out_pixel"]
            windows = (x, pointer("pixels", INDEX).at(pixel), pointer("words", INT32), f["word_count"])
            result = (pointer("out", BYTE).at(offset), pointer("residual", BYTE).at(offset), filters)
            strides = (f["out_block"], f["out_pixel"], *(f[name] for name in OUTPUT_FIELDS))
            code.call(self.tile, *windows, w, constants, *result, *strides)
