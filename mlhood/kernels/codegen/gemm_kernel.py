"""The vectorised matrix product as native code: the microkernel inside the loops of GotoBLAS and BLIS.

    for each block of nc columns of b, for each block of kc k:     (a round)
        pack that block of b into panels                           one task per panel
        for each block of mc rows of a:                            one task each, once b is packed
            pack that block of a into panels
            for each panel of b, for each panel of a: microkernel

Tasks are numbered consecutively; each waits for those that it depends on, so a single call does all the work with any
number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import amx
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, FLOAT, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import CACHE_LINE, PARAMETERS, Integers, MicrokernelSpec, Tile, microkernel
from mlhood.kernels.codegen.packing import SHORT, byte_packer, packer, tile_packer
from mlhood.kernels.codegen.target import Target

_TASKS = ("tasks", "rounds_k", "pack_tasks", "row_tasks", "m", "n", "k", "mc", "nc", "kc")
_OPERANDS = ("a", "a_row", "a_k", "a_ld", "b", "b_column", "b_k", "b_ld", "c", "ldc")
FIELDS = (*_TASKS, *_OPERANDS, "packed_a", "packed_b")
_UNROLL = 4


@dataclass(frozen=True)
class _Callees:
    """The functions that the loops call."""

    multiply: FunctionBuilder
    pack_a: FunctionBuilder
    pack_b: FunctionBuilder


def build(
    target: Target,
    rows: int,
    vectors: int,
    a_contiguous_rows: bool,
    b_contiguous_columns: bool,
    integers: Integers | None = None,
) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of the register tile.
        vectors: Vector registers in one of its rows.
        a_contiguous_rows: Whether the rows of a are contiguous (else its columns).
        b_contiguous_columns: Whether the columns of b are contiguous (else its rows).
        integers: If not float32, what an element is while it is multiplied, see `MicrokernelSpec`: an element of a is
            then four or two u8 of a row, b is s8, and c is s32. With `tiles` k is a multiple of 16 such elements.
    """
    module = ir.Module()
    tile = Tile(rows, vectors, target.lanes)
    spec = MicrokernelSpec(tile, unroll=_UNROLL, ahead=int(integers != "tiles"), integers=integers)
    pairs = integers == "pairs"
    if integers == "tiles":
        pack_a = tile_packer(module, "pack_a")
    else:
        pack_a = packer(module, "pack_a", tile.rows, a_contiguous_rows, target, pairs=pairs)
    if integers:
        pack_b = byte_packer(module, "pack_b", tile.columns, target, pairs=pairs)
    else:
        pack_b = packer(module, "pack_b", tile.columns, b_contiguous_columns, target)
    multiply = tile_microkernel if integers == "tiles" else microkernel
    callees = _Callees(multiply(module, "multiply", spec, target), pack_a, pack_b)
    arguments = Arguments(FIELDS, module)
    if integers == "tiles":
        amx.configure(arguments.code)
    _LoopNest(arguments, spec, callees).build()
    if integers == "tiles":
        amx.release(arguments.code)
    return arguments.finished()


class _LoopNest:
    """The loops around the microkernel."""

    def __init__(self, arguments: Arguments, spec: MicrokernelSpec, callees: _Callees) -> None:
        self.code, self.arguments, self.tile, self.callees = arguments.code, arguments, spec.tile, callees
        self.integers, self.element, self.is_ahead = spec.integers, spec.element, bool(spec.ahead)
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.edge = self.code.buffer(self.tile.rows * self.tile.columns, self.element)
        self.null = Pointer(self.code.builder, ir.Constant(ir.PointerType(), None))

    def build(self) -> None:
        """Build the function."""
        f, b = self.field, self.code.builder
        packed_a = self.arguments.pointer("packed_a").at(self.arguments.thread() * f["mc"] * f["kc"])
        per_round = f["pack_tasks"] + f["row_tasks"]
        with self.arguments.tasks(f["tasks"]) as task:
            round_, part = task // per_round, task % per_round
            j, k = round_ // f["rounds_k"] * f["nc"], round_ % f["rounds_k"] * f["kc"]
            is_packing = part < f["pack_tasks"]
            before = round_ * per_round
            self.arguments.wait_for(before.where(is_packing, before + f["pack_tasks"]))
            depth = (f["k"] - k).minimum(f["kc"])
            with b.if_else(is_packing) as (pack, multiply):
                with pack:
                    self._pack_b(part, j, k, depth)
                with multiply:
                    self._multiply_rows((part - f["pack_tasks"]) * f["mc"], j, k, depth, packed_a)

    def _pack_b(self, panel: Int, j: Int, k: Int, depth: Int) -> None:
        f, width = self.field, self.tile.columns
        column = j + panel * width
        with self.code.builder.if_then(column < f["n"]):
            b = self.arguments.pointer("b", BYTE if self.integers else FLOAT)
            source = b.at(k * f["b_k"] + column * f["b_column"])
            out = self.arguments.pointer("packed_b").at(panel * f["kc"] * width)
            self.code.call(self.callees.pack_b, source, f["b_ld"], (f["n"] - column).minimum(width), depth, out)

    def _multiply_rows(self, i: Int, j: Int, k: Int, depth: Int, packed_a: Pointer) -> None:
        """Multiply a block of rows of a with all packed panels of b."""
        f, width = self.field, self.tile.rows
        i_end, j_end = (i + f["mc"]).minimum(f["m"]), (j + f["nc"]).minimum(f["n"])
        with self.code.loop(i, i_end, width) as row:
            a = self.arguments.pointer("a", SHORT if self.integers == "pairs" else FLOAT)
            source = a.at(row * f["a_row"] + k * f["a_k"])
            out = packed_a.at((row - i) * depth)
            self.code.call(self.callees.pack_a, source, f["a_ld"], (i_end - row).minimum(width), depth, out)
        with self.code.loop(j, j_end, self.tile.columns) as column:
            panel = self.arguments.pointer("packed_b").at((column - j) * f["kc"])
            following = panel.at(f["kc"] * self.tile.columns)
            with self.code.loop(i, i_end, width) as row:
                if self.is_ahead:
                    self._prefetch_result(row + width, column, k, i_end)
                ahead = following.at((row - i) // width * (depth // _UNROLL * CACHE_LINE))
                self._tile(row, column, packed_a.at((row - i) * depth), panel, depth, k.equals(0), ahead)

    def _prefetch_result(self, row: Int, column: Int, k: Int, i_end: Int) -> None:
        """Prefetch the sums that the next tile goes on with."""
        f, builder = self.field, self.code.builder
        with builder.if_then(builder.and_(self.code.constant(0) < k, row + (self.tile.rows - 1) < i_end)):
            out = self.arguments.pointer("c", self.element).at(row * f["ldc"] + column)
            for m in range(self.tile.rows):
                for first in range(0, self.tile.columns, CACHE_LINE):
                    self.code.prefetch(out.at(f["ldc"] * m + first))

    def _tile(
        self, row: Int, column: Int, a: Pointer, panel: Pointer, depth: Int, is_first: Any, ahead: Pointer
    ) -> None:
        f, b, tile = self.field, self.code.builder, self.tile
        out = self.arguments.pointer("c", self.element).at(row * f["ldc"] + column)
        rows, columns = (f["m"] - row).minimum(tile.rows), (f["n"] - column).minimum(tile.columns)
        is_full = b.and_(rows.equals(tile.rows), columns.equals(tile.columns))
        with b.if_else(is_full) as (full, at_edge):
            with full:
                partial = Pointer(b, b.select(is_first, self.null.value, out.value))
                self._multiply(a, panel, depth, partial, f["ldc"], out, f["ldc"], ahead)
            with at_edge:
                width = self.code.constant(tile.columns)
                self._multiply(a, panel, depth, self.null, width, self.edge, width, ahead)
                self._accumulate_edge(out, rows, columns, is_first)

    def _multiply(
        self, a: Pointer, b: Pointer, depth: Int, partial: Pointer, pld: Int, out: Pointer, ld: Int, ahead: Pointer
    ) -> None:
        null, limits = self.null, [ir.Constant(FLOAT, float("-inf")), ir.Constant(FLOAT, float("inf"))]
        prefetched = [ahead] if self.is_ahead else []
        self.code.call(
            self.callees.multiply, a, b, null, depth, partial, pld, out, ld, null, null, *limits, *prefetched
        )

    def _accumulate_edge(self, out: Pointer, rows: Int, columns: Int, is_first: Any) -> None:
        """Add the part of an edge tile that is inside the result."""
        builder = self.code.builder
        with self.code.loop(0, rows) as m, self.code.loop(0, columns) as n:
            address, value = out.at(m * self.field["ldc"] + n), self.edge.at(m * self.tile.columns + n).load()
            with builder.if_else(is_first) as (assign, accumulate):
                with assign:
                    address.store(value)
                with accumulate:
                    add = builder.add if self.integers else builder.fadd
                    address.store(add(address.load(), value))


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
