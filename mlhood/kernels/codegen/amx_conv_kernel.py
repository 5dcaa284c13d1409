"""The convolution of bytes through AMX tiles as native code, exact: sums of products in 32 bits, requantised to bytes.

A first stage copies the input into a workspace where it is padded and all channels of a pixel are adjacent, as bytes:
the zero point is in the bias. A window is then a list of steps: runs of at most 64 adjacent bytes, with weights of zero
where a run is shorter. Row m of a tile of a is the m-th pixel's run, and all rows are at the same distance, so one load
fetches 16 pixels; it goes on across the end of a row of the image. What it computes between two rows of the result, in
the padding, is not stored. Where the vertical stride is s, rows y, y + s, y + 2s, ... are adjacent in the workspace.

Two tiles of pixels are multiplied with one or two of channels. The sums go through a buffer in the first-level cache to
vector registers, where they become bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from mlhood.kernels.codegen import amx
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.int8_input import INPUT_FIELDS, Input, InputStage
from mlhood.kernels.codegen.ir_builder import ADDRESS, BYTE, INDEX, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.requantize import (
    BLOCK,
    OUTPUT_FIELDS,
    Requantization,
    Requantizer,
    copy_bytes,
    read_output,
)
from mlhood.kernels.codegen.target import Target

PIXELS = 2 * amx.ROWS  # of the tiles that are computed together
_TASKS = ("phases", "tasks", "chunks", "chunk", "tiles", "column_tiles", "group_tiles")
_WINDOWS = ("firsts", "places", "steps", "step_count", "x_row", "x_image", "x_group", "w", "w_tile", "constants")
_RESULT = ("out", "residual", "filters", "out_image", "out_block", "out_pixel")
FIELDS = (*INPUT_FIELDS, *_TASKS, *_WINDOWS, *_RESULT, *OUTPUT_FIELDS)


@dataclass(frozen=True)
class AmxVariant:
    """A variant of the convolution through tiles.

    Args:
        columns: Tiles of 16 output channels that are computed together, 1 or 2.
        input: `plain` [N, C, H, W], `blocked` [N, C / 16, H, W, 16] or `flat`, rows that are copied as they are.
        requantization: How sums become bytes.
    """

    columns: int
    input: Input
    requantization: Requantization


def build(target: Target, variant: AmxVariant) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    tile = _tile(module, variant, target)
    arguments = Arguments(FIELDS, module)
    code = arguments.code
    stage = _ChannelsLast(arguments, variant.input, signed=variant.requantization.signed, bytes=True)
    amx.configure(code)
    field = {name: arguments.integer(name) for name in FIELDS}
    with arguments.tasks(field["tasks"]) as task, code.builder.if_else(task < field["pads"]) as (pad, convolve):
        with pad:
            stage.fill(task)
        with convolve:
            arguments.wait_for(field["pads"])
            _convolve(code, arguments, field, variant, tile, task - field["pads"])
    amx.release(code)
    return arguments.finished()


# -- the first stage


class _ChannelsLast(InputStage):
    """Generates the code that fills the workspace [N, phases, padded_high / phases, padded_wide, in_pixel]."""

    def fill(self, task: Int) -> None:
        """Fill a part of the rows of the workspace."""
        if self.input == "flat":
            super().fill(task)
            return
        f, b, phases = self.field, self.code.builder, self.arguments.integer("phases")
        start, stop = task * f["rows"] // f["pads"], (task + 1) * f["rows"] // f["pads"]
        per_phase = f["padded_high"] // phases
        with self.code.loop(start, stop) as row:
            image, slot = row // f["padded_high"], row % f["padded_high"]
            source_y = (slot % per_phase * phases + slot // per_phase - f["top"]) * f["step_y"]
            out = self.arguments.pointer("x", BYTE).at(row * f["padded_wide"] * f["in_pixel"])
            inside = b.and_(self.code.constant(-1) < source_y, source_y < f["high"])
            left = f["left"].where(inside, f["padded_wide"])
            right = (f["left"] + f["copied"]).where(inside, f["padded_wide"])
            parts = self.code.constant(1) if self.input == "plain" else f["in_blocks"]
            self._pad(out, self.code.constant(0), left * parts)
            self._pad(out, right * parts, f["padded_wide"] * parts)
            with b.if_then(inside):
                inner = out.at(left * f["in_pixel"])
                if self.input == "plain":
                    self._widen_plain(inner, image, source_y)
                else:
                    self._gather_blocks(inner, image, source_y)

    def _gather_blocks(self, out: Pointer, image: Int, y: Int) -> None:
        """Copy the blocks of channels of a row of pixels: four at a time, then one."""
        f, code = self.field, self.code
        together = amx.ROW_BYTES // BLOCK
        whole = f["in_blocks"] - f["in_blocks"] % together
        for first, stop, count in ((code.constant(0), whole, together), (whole, f["in_blocks"], 1)):
            with code.loop(first, stop, count) as block, code.loop(0, f["copied"]) as pixel:
                for i in range(count):
                    row = ((image * f["in_blocks"] + block + i) * f["high"] + y) * f["wide"] + pixel * f["step_x"]
                    values = self.arguments.pointer("source", BYTE).at(row * BLOCK).load(BLOCK)
                    out.at(pixel * f["in_pixel"] + (block + i) * BLOCK).store(values)


# -- the tiles

_TILE_PARAMETERS = {
    "x": ADDRESS,  # the window of the first pixel
    "x_row": INDEX,  # bytes from one pixel's window to the next
    "steps": ADDRESS,  # offsets of a window's runs, int64, in bytes
    "count": INDEX,  # number of runs
    "w": ADDRESS,
    "constants": ADDRESS,
    "places": ADDRESS,  # which row of the tiles each pixel of the result is in, bytes
    "pixels": INDEX,  # of the result
    "out": ADDRESS,
    "residual": ADDRESS,
    "filters": INDEX,  # channels of the result that are stored
    "out_block": INDEX,
    "out_pixel": INDEX,
    **dict.fromkeys(OUTPUT_FIELDS, INDEX),
}


def _tile(module: ir.Module, variant: AmxVariant, target: Target) -> FunctionBuilder:
    """Add a function that computes 32 pixels of one or two blocks of output channels."""
    code = FunctionBuilder(module, "tile", _TILE_PARAMETERS, public=False)
    columns, kind = variant.columns, variant.requantization
    size, row_bytes = kind.sections["end"], columns * amx.ROW_BYTES
    constants = [code.pointer("constants", INDEX).at(size * block) for block in range(columns)]
    for row in amx.SUMS:
        for tile in row[:columns]:
            amx.zero(code, tile)
    x, w, steps = code.pointer("x", BYTE), code.pointer("w", BYTE), code.pointer("steps", INDEX)
    with code.loop(0, code.integer("count")) as k:
        a = (x.at(steps.at(k).load_int()), code.integer("x_row"))
        b = (w.at(k * (amx.QUADS * row_bytes)), row_bytes)
        amx.multiply_step(code, columns, a, b, signed=kind.signed)
    sums = code.buffer(PIXELS * row_bytes, BYTE)
    for r, row in enumerate(amx.SUMS):
        for block, tile in enumerate(row[:columns]):
            amx.store(code, tile, sums.at(r * amx.ROWS * row_bytes + block * amx.ROW_BYTES), row_bytes)
    output = read_output(code.integer)
    for block in range(columns):
        stored = code.integer("filters") - block * BLOCK
        with code.builder.if_then(code.constant(0) < stored):
            requantizer = Requantizer(code, kind, constants[block], target.lanes, output)
            requantizer.preload()
            _store_block(code, requantizer, sums.at(block * amx.ROW_BYTES), row_bytes, block, stored)
    code.ret()
    return code


def _store_block(
    code: FunctionBuilder, requantizer: Requantizer, sums: Pointer, row_bytes: int, block: int, stored: Int
) -> None:
    """Requantise and store a block of 16 channels of all pixels; one that is not full goes through a buffer."""
    b, step, lanes = code.builder, code.integer("out_pixel"), requantizer.lanes
    out, z = (code.pointer(name, BYTE).at(code.integer("out_block") * block) for name in ("out", "residual"))
    partial, has_z = stored < BLOCK, requantizer.kind.residual
    buffers = [code.buffer(amx.ROW_BYTES, BYTE) for _ in range(2)]
    with code.loop(0, code.integer("pixels")) as pixel:
        place = Int(b, b.zext(code.pointer("places", BYTE).at(pixel).load(), INDEX))
        row = sums.at(place * row_bytes).cast(INT32)
        totals = [b.add(row.at(v * lanes).load(lanes), requantizer.bias(v)) for v in range(BLOCK // lanes)]
        target, term = out.at(pixel * step), None
        if has_z:
            with b.if_then(partial):
                copy_bytes(code, buffers[1], z.at(pixel * step), stored)
            term = Pointer(b, b.select(partial, buffers[1].value, z.at(pixel * step).value), BYTE).load(BLOCK)
        values = requantizer.bytes_of(totals, term)
        with b.if_else(partial) as (one_by_one, at_once):
            with one_by_one:
                buffers[0].store(values)
                copy_bytes(code, target, buffers[0], stored)
            with at_once:
                target.store(values)


# -- the loops


def _convolve(
    code: FunctionBuilder,
    arguments: Arguments,
    f: dict[str, Int],
    variant: AmxVariant,
    tile: FunctionBuilder,
    task: Int,
) -> None:
    """Compute a chunk of the tiles of pixels, for one tile of output channels, of one image."""
    columns, rest = task % f["column_tiles"], task // f["column_tiles"]
    chunk, image = rest % f["chunks"], rest // f["chunks"]
    group, size = columns // f["group_tiles"], variant.requantization.sections["end"]
    pointer = arguments.pointer
    x = pointer("x", BYTE).at(image * f["x_image"] + group * f["x_group"])
    w = pointer("w", BYTE).at(columns * f["w_tile"])
    constants = pointer("constants", INDEX).at(columns * (variant.columns * size))
    base = image * f["out_image"] + columns * f["out_block"] * variant.columns
    filters = f["filters"] - columns * (variant.columns * BLOCK)
    start = chunk * f["chunk"]
    with code.loop(start, (start + f["chunk"]).minimum(f["tiles"])) as i:
        first, stop = (pointer("firsts", INDEX).at(i + j).load_int() for j in (0, 1))
        offset = base + first * f["out_pixel"]
        window = (x.at(i * f["x_row"] * PIXELS), f["x_row"], pointer("steps", INDEX), f["step_count"], w, constants)
        result = (pointer("places", BYTE).at(first), stop - first)
        result += (pointer("out", BYTE).at(offset), pointer("residual", BYTE).at(offset), filters)
        strides = (f["out_block"], f["out_pixel"], *(f[name] for name in OUTPUT_FIELDS))
        code.call(tile, *window, *result, *strides)
