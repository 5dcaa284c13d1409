"""The vectorised rung of the matrix product's ladder: the microkernel inside the loops of GotoBLAS and BLIS.

    for each block of nc columns of b, for each block of kc k:     (a round)
        pack that block of b into panels                           one task per panel
        for each block of mc rows of a:                            one task each, once b is packed
            pack that block of a into panels
            for each panel of b, for each panel of a: microkernel

Tasks are numbered consecutively; each waits for those that it depends on, so a single call does all the work with any
number of threads.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels import native
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import CACHE_LINE, MicrokernelSpec, Tile, cheapest, microkernel
from mlhood.kernels.codegen.packing import packer
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call

# Block sizes: a panel of b takes at most half of a second-level cache of 256 KiB
KC, NC, MC = 512, 2016, 112
_TASKS_PER_THREAD = 8
_STRIDES = ("a_row", "a_k", "a_ld", "b_column", "b_k", "b_ld")
_PACKED = ("packed_a", "packed_b")
_OPERANDS = ("a", "b", "c", *_PACKED)
_TASKS = ("tasks", "rounds_k", "pack_tasks", "row_tasks", "m", "n", "k", "mc", "nc", "kc")
FIELDS = (*_TASKS, "a", "a_row", "a_k", "a_ld", "b", "b_column", "b_k", "b_ld", "c", "ldc", *_PACKED)
_UNROLL = 4


def multiply(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b for non-empty float32 [M, K] and [K, N]."""
    a, b = _contiguous_axis(a), _contiguous_axis(b)
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    (a_row, a_k), (b_k, b_column) = (s // 4 for s in a.strides), (s // 4 for s in b.strides)
    contiguous = a.strides[1] == 4, b.strides[1] != 4  # rows of a, columns of b
    strides = a_row, a_k, a_row if contiguous[0] else a_k, b_column, b_k, b_column if contiguous[1] else b_k
    call = _prepare((*a.shape, c.shape[1]), strides, contiguous, threads, target or host(), (KC, NC))
    native.run(call, threads, a=a, b=b, c=c)
    return c


@functools.lru_cache(maxsize=256)
def _prepare(
    sizes: tuple[int, int, int],
    strides: tuple[int, ...],
    contiguous: tuple[bool, bool],
    threads: int,
    target: Target,
    max_blocks: tuple[int, int],
) -> NativeCall:
    """Return the call for M, K, N, `_STRIDES`, and blocks of at most `max_blocks` of K and N.

    Cached, because building it takes longer than a small product.
    """
    m, k, n = sizes
    tile = cheapest(target, m, n)
    kc, nc = min(max_blocks[0], k), min(-(-max_blocks[1] // tile.columns), -(-n // tile.columns)) * tile.columns
    # mc: few enough rows of a per task to balance the load of all threads
    most = max(1, MC // tile.rows)
    balanced = -(-m // (tile.rows * threads * _TASKS_PER_THREAD)) if threads > 1 else most
    mc = tile.rows * max(1, min(most, balanced))
    rounds_k, rounds_n = -(-k // kc), -(-n // nc)
    pack_tasks, row_tasks = nc // tile.columns, -(-m // mc)
    values = {"tasks": rounds_k * rounds_n * (pack_tasks + row_tasks), "rounds_k": rounds_k}
    values |= {"pack_tasks": pack_tasks, "row_tasks": row_tasks}
    values |= {"m": m, "n": n, "k": k, "mc": mc, "nc": nc, "kc": kc, "ldc": n}
    values |= dict(zip(_STRIDES, strides, strict=True))
    kernel = jit.load(build, target, tile.rows, tile.vectors, *contiguous)
    workspace = {"packed_a": 4 * threads * mc * kc, "packed_b": 4 * nc * kc}
    return native_call(kernel, FIELDS, values, _OPERANDS, workspace=workspace)


def _contiguous_axis(matrix: np.ndarray) -> np.ndarray:
    """Return the matrix if its rows or its columns are contiguous, else a copy."""
    rows, columns = matrix.strides
    contiguous = (columns == 4 and rows > 0 and rows % 4 == 0) or (rows == 4 and columns > 0 and columns % 4 == 0)
    return matrix if contiguous else np.ascontiguousarray(matrix)


# -- the generated code


def build(target: Target, rows: int, vectors: int, a_contiguous_rows: bool, b_contiguous_columns: bool) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of the register tile.
        vectors: Vector registers in one of its rows.
        a_contiguous_rows: Whether the rows of a are contiguous (else its columns).
        b_contiguous_columns: Whether the columns of b are contiguous (else its rows).
    """
    module = ir.Module()
    tile = Tile(rows, vectors, target.lanes)
    multiply = microkernel(module, "multiply", MicrokernelSpec(tile, unroll=_UNROLL, ahead=1), target)
    pack_a = packer(module, "pack_a", tile.rows, a_contiguous_rows, target)
    pack_b = packer(module, "pack_b", tile.columns, b_contiguous_columns, target)
    return _LoopNest(Arguments(FIELDS, module), tile, multiply, pack_a, pack_b).build()


class _LoopNest:
    """The loops around the microkernel."""

    def __init__(
        self,
        arguments: Arguments,
        tile: Tile,
        multiply: FunctionBuilder,
        pack_a: FunctionBuilder,
        pack_b: FunctionBuilder,
    ) -> None:
        self.code, self.arguments, self.tile = arguments.code, arguments, tile
        self.multiply, self.pack_a, self.pack_b = multiply, pack_a, pack_b
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.edge = self.code.buffer(tile.rows * tile.columns)
        self.null = Pointer(self.code.builder, ir.Constant(ir.PointerType(), None))

    def build(self) -> str:
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
        return self.arguments.finished()

    def _pack_b(self, panel: Int, j: Int, k: Int, depth: Int) -> None:
        f, width = self.field, self.tile.columns
        column = j + panel * width
        with self.code.builder.if_then(column < f["n"]):
            source = self.arguments.pointer("b").at(k * f["b_k"] + column * f["b_column"])
            out = self.arguments.pointer("packed_b").at(panel * f["kc"] * width)
            self.code.call(self.pack_b, source, f["b_ld"], (f["n"] - column).minimum(width), depth, out)

    def _multiply_rows(self, i: Int, j: Int, k: Int, depth: Int, packed_a: Pointer) -> None:
        """Multiply a block of rows of a with all packed panels of b."""
        f, width = self.field, self.tile.rows
        i_end, j_end = (i + f["mc"]).minimum(f["m"]), (j + f["nc"]).minimum(f["n"])
        with self.code.loop(i, i_end, width) as row:
            source = self.arguments.pointer("a").at(row * f["a_row"] + k * f["a_k"])
            out = packed_a.at((row - i) * depth)
            self.code.call(self.pack_a, source, f["a_ld"], (i_end - row).minimum(width), depth, out)
        with self.code.loop(j, j_end, self.tile.columns) as column:
            panel = self.arguments.pointer("packed_b").at((column - j) * f["kc"])
            following = panel.at(f["kc"] * self.tile.columns)
            with self.code.loop(i, i_end, width) as row:
                self._prefetch_result(row + width, column, k, i_end)
                ahead = following.at((row - i) // width * (depth // _UNROLL * CACHE_LINE))
                self._tile(row, column, packed_a.at((row - i) * depth), panel, depth, k.equals(0), ahead)

    def _prefetch_result(self, row: Int, column: Int, k: Int, i_end: Int) -> None:
        """Prefetch the sums that the next tile goes on with."""
        f, builder = self.field, self.code.builder
        with builder.if_then(builder.and_(self.code.constant(0) < k, row + (self.tile.rows - 1) < i_end)):
            out = self.arguments.pointer("c").at(row * f["ldc"] + column)
            for m in range(self.tile.rows):
                for first in range(0, self.tile.columns, CACHE_LINE):
                    self.code.prefetch(out.at(f["ldc"] * m + first))

    def _tile(
        self, row: Int, column: Int, a: Pointer, panel: Pointer, depth: Int, is_first: Any, ahead: Pointer
    ) -> None:
        f, b, tile = self.field, self.code.builder, self.tile
        out = self.arguments.pointer("c").at(row * f["ldc"] + column)
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
        null = self.null
        self.code.call(self.multiply, a, b, null, depth, partial, pld, out, ld, null, null, ahead)

    def _accumulate_edge(self, out: Pointer, rows: Int, columns: Int, is_first: Any) -> None:
        """Add the part of an edge tile that is inside the result."""
        builder = self.code.builder
        with self.code.loop(0, rows) as m, self.code.loop(0, columns) as n:
            address, value = out.at(m * self.field["ldc"] + n), self.edge.at(m * self.tile.columns + n).load()
            with builder.if_else(is_first) as (assign, accumulate):
                with assign:
                    address.store(value)
                with accumulate:
                    address.store(builder.fadd(address.load(), value))
