"""Copying matrices in another order: packing strips into panels, padding planes with zeros, transposing.

A panel, which the microkernel reads sequentially, of width p holds a strip of p rows (or columns) of a matrix, k by k:
panel[k, i], zero-padded where the matrix ends before the panel does. Where the elements of one k are contiguous they
are copied; where those of one row are, square blocks are transposed in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, INT32, FunctionBuilder, Int, Pointer, transpose
from mlhood.kernels.codegen.remainder import load_first, load_lanes, masked_intrinsic, store_first, store_lanes
from mlhood.kernels.codegen.target import Target

# `count` rows are valid; `ld` is the distance to the next row (contiguous rows) or to the next k (contiguous columns)
PARAMETERS = {"source": ADDRESS, "ld": INDEX, "count": INDEX, "depth": INDEX, "out": ADDRESS}
FIELDS = ("tasks", "blocks", "source", "group", "ld", "count", "depth", "out")
_PREFETCH = 2  # vectors ahead in each row; hardware prefetchers do not follow that many rows at once
_ZERO = ir.Constant(FLOAT, 0.0)


def packer(module: ir.Module, name: str, width: int, contiguous_rows: bool, target: Target) -> FunctionBuilder:
    """Add a function with `PARAMETERS` that packs one panel.

    Args:
        module: The module that gets the function.
        name: Its symbol.
        width: Width of the panel.
        contiguous_rows: Whether the elements of one row are contiguous (else those of one k).
        target: The processor.
    """
    code = FunctionBuilder(module, name, PARAMETERS, public=False)
    full = code.integer("count").equals(width)
    start = code.variable(INDEX, INDEX(0))
    with code.builder.if_then(full):
        if contiguous_rows:
            _transpose_blocks(code, width, target)
        else:
            _copy_rows(code, width, target)
        depth = code.integer("depth")
        start.set((depth - depth % target.lanes if contiguous_rows else depth).value)
    _copy_elements(code, Int(code.builder, start.get()), width, contiguous_rows)
    code.ret()
    return code


def _lane_groups(width: int, lanes: int) -> list[tuple[int, int]]:
    """Split a width into vectors: (first lane, lanes)."""
    return [(first, min(lanes, width - first)) for first in range(0, width, lanes)]


def _transpose_blocks(code: FunctionBuilder, width: int, target: Target) -> None:
    source, out = code.pointer("source"), code.pointer("out")
    ld, depth = code.integer("ld"), code.integer("depth")
    with code.loop(0, depth - depth % target.lanes, target.lanes) as k:
        for first, count in _lane_groups(width, target.lanes):
            addresses = [source.at(ld * (first + row) + k) for row in range(count)]
            for address in addresses:
                code.prefetch(address.at(_PREFETCH * target.lanes))
            rows = [address.load(target.lanes) for address in addresses]
            for lane, column in enumerate(transpose(code, rows, target.lanes)):
                store_lanes(code, out.at((k + lane) * width + first), column, count, target)


def _copy_rows(code: FunctionBuilder, width: int, target: Target) -> None:
    source, ld, out = code.pointer("source"), code.integer("ld"), code.pointer("out")
    with code.loop(0, code.integer("depth")) as k:
        for first, count in _lane_groups(width, target.lanes):
            vector = load_lanes(code, source.at(ld * k + first), target.lanes, count)
            store_lanes(code, out.at(k * width + first), vector, count, target)


def _copy_elements(code: FunctionBuilder, start: Int, width: int, contiguous_rows: bool) -> None:
    """Copy the remaining k one element at a time, with zeros where the strip is narrower than the panel."""
    source, out = code.pointer("source"), code.pointer("out")
    ld, count = code.integer("ld"), code.integer("count")
    with code.loop(start, code.integer("depth")) as k:
        with code.loop(0, count) as row:
            offset = ld * row + k if contiguous_rows else ld * k + row
            out.at(k * width + row).store(source.at(offset).load())
        with code.loop(count, width) as row:
            out.at(k * width + row).store(_ZERO)


def padder(module: ir.Module, name: str, target: Target) -> FunctionBuilder:
    """Add a function that copies a plane of `high` x `wide` float32 into the middle of a larger one of zeros.

    That has `top` more rows above it and `left` more elements before a row; a convolution reads it at its borders. Its
    rows are written from left to right, a vector at a time: lanes inside the image are loaded, the others are zero.
    """
    integers = dict.fromkeys(("padded_high", "padded_wide", "top", "left"), INDEX)
    parameters = {"source": ADDRESS, "high": INDEX, "wide": INDEX, "out": ADDRESS, **integers}
    code = FunctionBuilder(module, name, parameters, public=False)
    top, left, high, wide = (code.integer(parameter) for parameter in ("top", "left", "high", "wide"))
    padded_wide = code.integer("padded_wide")
    source, out = code.pointer("source"), code.pointer("out")
    with code.loop(0, code.integer("padded_high")) as row:
        in_image = code.builder.and_(top < row + 1, row < top + high)
        stop = (left + wide).where(in_image, left)
        line = source.at((row - top) * wide)
        with code.loop(0, padded_wide, target.lanes) as column:
            pixels, address = line.at(column - left), out.at(row * padded_wide + column)
            all_in_image = code.builder.and_(left < column + 1, column + target.lanes < stop + 1)
            with code.builder.if_else(all_in_image) as (copy, mix):
                with copy:
                    address.store(pixels.load(target.lanes))
                with mix:
                    from_left = _compare_lanes(code, ">=", column, left, target)
                    image = code.builder.and_(from_left, _compare_lanes(code, "<", column, stop, target))
                    valid = _compare_lanes(code, "<", column, padded_wide, target)
                    _copy_masked(code, pixels, address, image, valid)
    code.ret()
    return code


def _copy_masked(code: FunctionBuilder, source: Pointer, out: Pointer, image: Any, valid: Any) -> None:
    """Copy the lanes in the mask `image`, and write zeros to the other lanes in the mask `valid`."""
    kind = ir.VectorType(FLOAT, image.type.count)
    zeros = ir.Constant(kind, [0.0] * kind.count)
    pixels = code.builder.call(masked_intrinsic(code, "load", kind), [source.value, INT32(4), image, zeros])
    code.builder.call(masked_intrinsic(code, "store", kind), [pixels, out.value, INT32(4), valid])


def _compare_lanes(code: FunctionBuilder, comparison: str, first: Int, limit: Int, target: Target) -> Any:
    """Return the mask of the indices `first`, `first` + 1, ... that compare like this with the limit."""
    lanes = ir.Constant(ir.VectorType(INT32, target.lanes), list(range(target.lanes)))
    distance = code.builder.trunc((limit - first).value, INT32)
    return code.builder.icmp_signed(comparison, lanes, code.splat(distance, target.lanes))


def build(target: Target, width: int, contiguous_rows: bool) -> str:
    """Return the LLVM IR of a kernel that packs the matrices of several groups, one panel per task."""
    module = ir.Module()
    pack = packer(module, "pack", width, contiguous_rows, target)
    arguments = Arguments(FIELDS, module)
    f: dict[str, Any] = {name: arguments.integer(name) for name in FIELDS}
    source, out = arguments.pointer("source"), arguments.pointer("out")
    with arguments.tasks(f["tasks"]) as task:
        group, first = task // f["blocks"], task % f["blocks"] * width
        strip = source.at(group * f["group"] + (first * f["ld"] if contiguous_rows else first))
        count = (f["count"] - first).minimum(width)
        arguments.code.call(pack, strip, f["ld"], count, f["depth"], out.at(task * f["depth"] * width))
    return arguments.finished()


def transposer(module: ir.Module, name: str, target: Target) -> FunctionBuilder:
    """Add a function that sets out[column * out_ld + row] = source[row * source_ld + column]."""
    sizes = {"source": ADDRESS, "source_ld": INDEX, "rows": INDEX, "columns": INDEX, "out": ADDRESS, "out_ld": INDEX}
    code = FunctionBuilder(module, name, sizes, public=False)
    rows, columns, lanes = code.integer("rows"), code.integer("columns"), target.lanes
    with code.loop(0, rows, lanes) as row:
        is_tall = row + (lanes - 1) < rows
        with code.loop(0, columns, lanes) as column:
            is_full = code.builder.and_(is_tall, column + (lanes - 1) < columns)
            with code.builder.if_else(is_full) as (full, partial):
                with full:
                    _block(code, row, column, target)
                with partial:
                    _partial_block(code, row, column, target)
    code.ret()
    return code


def _block(code: FunctionBuilder, row: Int, column: Int, target: Target) -> None:
    source, source_ld = code.pointer("source"), code.integer("source_ld")
    block = [source.at((row + i) * source_ld + column).load(target.lanes) for i in range(target.lanes)]
    for i, vector in enumerate(transpose(code, block, target.lanes)):
        code.pointer("out").at((column + i) * code.integer("out_ld") + row).store(vector)


def _partial_block(code: FunctionBuilder, row: Int, column: Int, target: Target) -> None:
    """Transpose a block that is cut off by the matrix's last row or column: what is missing reads as zero."""
    source, source_ld = code.pointer("source"), code.integer("source_ld")
    rows, columns = code.integer("rows") - row, code.integer("columns") - column
    block: list[Any] = []
    for i in range(target.lanes):
        count = columns.where(code.constant(i) < rows, 0)
        block.append(load_first(code, source.at((row + i) * source_ld + column), count, target.lanes))
    for i, vector in enumerate(transpose(code, block, target.lanes)):
        with code.builder.if_then(code.constant(i) < columns):
            address = code.pointer("out").at((column + i) * code.integer("out_ld") + row)
            store_first(code, address, vector, rows.minimum(target.lanes), target)
