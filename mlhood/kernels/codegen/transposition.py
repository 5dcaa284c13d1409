"""The transposition of a matrix of float32 in blocks of lanes x lanes, in vector registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, INDEX, FunctionBuilder, Int, transpose
from mlhood.kernels.codegen.remainder import load_first, store_first
from mlhood.kernels.codegen.target import Target

PARAMETERS = {"source": ADDRESS, "source_ld": INDEX, "rows": INDEX, "columns": INDEX, "out": ADDRESS, "out_ld": INDEX}


def transposer(module: ir.Module, name: str, target: Target, pad: bool = False) -> FunctionBuilder:
    """Add a function with `PARAMETERS` that sets out[column * out_ld + row] = source[row * source_ld + column].

    Args:
        module: The module that gets the function.
        name: Its symbol.
        target: The processor.
        pad: Whether rows of the result are filled up with zeros to a multiple of the lanes.
    """
    code = FunctionBuilder(module, name, PARAMETERS, public=False)
    rows, columns, lanes = code.integer("rows"), code.integer("columns"), target.lanes
    with code.loop(0, rows, lanes) as row:
        is_tall = row + (lanes - 1) < rows
        with code.loop(0, columns, lanes) as column:
            is_full = code.builder.and_(is_tall, column + (lanes - 1) < columns)
            with code.builder.if_else(is_full) as (full, partial):
                with full:
                    _block(code, row, column, target)
                with partial:
                    _partial_block(code, row, column, target, pad)
    code.ret()
    return code


def _block(code: FunctionBuilder, row: Int, column: Int, target: Target) -> None:
    source, source_ld = code.pointer("source"), code.integer("source_ld")
    block = [source.at((row + i) * source_ld + column).load(target.lanes) for i in range(target.lanes)]
    for i, vector in enumerate(transpose(code, block, target.lanes)):
        code.pointer("out").at((column + i) * code.integer("out_ld") + row).store(vector)


def _partial_block(code: FunctionBuilder, row: Int, column: Int, target: Target, pad: bool) -> None:
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
            if pad:
                address.store(vector)
            else:
                store_first(code, address, vector, rows.minimum(target.lanes), target)
