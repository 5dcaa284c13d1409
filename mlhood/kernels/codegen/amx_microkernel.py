"""The microkernel of bytes on AMX tiles: 32 rows and 32 columns of the result, 64 k in a step."""

from __future__ import annotations

from llvmlite import ir

from mlhood.kernels.codegen import amx
from mlhood.kernels.codegen.ir_builder import BYTE, INT32, FunctionBuilder
from mlhood.kernels.codegen.microkernel import PARAMETERS, MicrokernelSpec
from mlhood.kernels.codegen.target import Target


def tile_microkernel(module: ir.Module, name: str, spec: MicrokernelSpec, target: Target) -> FunctionBuilder:
    """Add a microkernel of u8 times s8 with the `PARAMETERS` of `microkernel`; tiles are configured before.

    Args:
        module: The module that gets the function.
        name: Its symbol.
        spec: Its tile has 32 rows and 32 columns. a is packed as `tile_packer` does, b as `byte_packer` does.
        target: The processor.
    """
    code = FunctionBuilder(module, name, PARAMETERS, public=False)
    columns, row_bytes = spec.tile.vectors, 4 * spec.tile.columns
    partial, out, ld = (code.pointer("partial", INT32), code.pointer("out", INT32), code.integer("ld"))
    corners = [(r, c, amx.SUMS[r][c]) for r in range(2) for c in range(columns)]
    for row in range(spec.tile.rows):  # the rows of c are far apart, so no hardware prefetcher follows them
        for column in range(columns):
            code.prefetch(out.at(ld * row).at(column * amx.ROWS), write=True)
    with code.builder.if_else(partial.is_null()) as (first, later):
        with first:
            for _, _, tile in corners:
                amx.zero(code, tile)
        with later:
            step = code.integer("partial_ld")
            for r, c, tile in corners:
                amx.load(code, tile, partial.at(step * (r * amx.ROWS)).at(c * amx.ROWS), step * 4)
    a, b = code.pointer("a", BYTE), code.pointer("b", BYTE)
    with code.loop(0, code.integer("count") // amx.QUADS) as k:
        tiles_a = (a.at(k * (2 * amx.ROWS * amx.ROW_BYTES)), amx.ROW_BYTES)
        amx.multiply_step(code, columns, tiles_a, (b.at(k * (amx.QUADS * row_bytes)), row_bytes), signed=False)
    for r, c, tile in corners:
        amx.store(code, tile, out.at(ld * (r * amx.ROWS)).at(c * amx.ROWS), ld * 4)
    code.ret()
    return code
