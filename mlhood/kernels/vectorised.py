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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels import parallel
from mlhood.kernels.codegen import amx, jit
from mlhood.kernels.codegen.arguments import Arguments, pack_arguments, word_index
from mlhood.kernels.codegen.ir_builder import BYTE, FLOAT, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import (
    CACHE_LINE,
    PARAMETERS,
    Integers,
    MicrokernelSpec,
    Tile,
    cheapest,
    microkernel,
)
from mlhood.kernels.codegen.packing import SHORT, byte_packer, packer, tile_packer
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.parallel import scratch

# Block sizes: a panel of b takes at most half of a second-level cache of 256 KiB; see `mlhood bench gemm`
KC, NC, MC = 512, 2016, 112
_TASKS_PER_THREAD = 8
_LARGEST_SMALL = (2**15 - 1) // (2 * 128)  # of a: the sum of two products with bytes of b fits into 16 bits
_STRIDES = ("a_row", "a_k", "a_ld", "b_column", "b_k", "b_ld")
_PACKED = ("packed_a", "packed_b")
_ADDRESSES = ("a", "b", "c", *_PACKED)
_TASKS = ("tasks", "rounds_k", "pack_tasks", "row_tasks", "m", "n", "k", "mc", "nc", "kc")
FIELDS = (*_TASKS, "a", "a_row", "a_k", "a_ld", "b", "b_column", "b_k", "b_ld", "c", "ldc", *_PACKED)
_ADDRESS_WORDS = [word_index(FIELDS, name) for name in _ADDRESSES]
_UNROLL = 4


@dataclass(frozen=True)
class _Template:
    """What all products of a shape have in common.

    Args:
        kernel: The native function.
        arguments: Its argument block, with addresses left zero.
        packed: Sizes of the scratch buffers for panels of a and of b, in float32.
    """

    kernel: jit.Kernel
    arguments: np.ndarray
    packed: tuple[int, int]


def multiply(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b for non-empty float32 [M, K] and [K, N]."""
    a, b = _contiguous_axis(a), _contiguous_axis(b)
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    (a_row, a_k), (b_k, b_column) = (s // 4 for s in a.strides), (s // 4 for s in b.strides)
    contiguous = a.strides[1] == 4, b.strides[1] != 4  # rows of a, columns of b
    strides = a_row, a_k, a_row if contiguous[0] else a_k, b_column, b_k, b_column if contiguous[1] else b_k
    return _run(a, b, c, strides, contiguous, threads, target or host())


def multiply_bytes(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b in int32 for non-empty uint8 [M, K] and int8 [K, N].

    With AMX, tiles of 64 bytes of k are multiplied. Four bytes of a row are multiplied at a time where that is exact:
    with VNNI, or with AVX2 if the bytes of a are at most 127. Elsewhere both factors are widened to 16 bits while they
    are packed.
    """
    target = target or host()
    small = target.name == "avx2" and int(a.max()) <= _LARGEST_SMALL
    integers: Integers = "tiles" if target.tiles else "bytes" if target.dot else "small_bytes" if small else "pairs"
    word, kind = (2, np.int16) if integers == "pairs" else (4, np.int32)
    missing = -a.shape[1] % (amx.ROW_BYTES if integers == "tiles" else word)
    a = np.pad(a, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(a)
    b = np.pad(b, ((0, missing), (0, 0))) if missing else np.ascontiguousarray(b)
    c = np.empty((a.shape[0], b.shape[1]), np.int32)
    words, n = a.view(kind), b.shape[1]
    k = words.shape[1]
    strides = (k, 1, k, 1, word * n, n)
    return _run(words, b, c, strides, (True, False, integers), threads, target)


def _run(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    strides: tuple[int, ...],
    variant: tuple[Any, ...],
    threads: int,
    target: Target,
) -> np.ndarray:
    """Run the kernel for `_STRIDES` and for a variant: the trailing arguments of `build`."""
    template = _template((*a.shape, c.shape[1]), strides, variant, threads, target, (KC, NC))
    packed = [scratch(name, size) for name, size in zip(_PACKED, template.packed, strict=True)]
    arguments, arrays = template.arguments.copy(), (a, b, c, *packed)
    arguments[_ADDRESS_WORDS] = [parallel.data_address(array) for array in arrays]
    parallel.launch(template.kernel, arguments, arrays, threads)
    return c


@functools.lru_cache(maxsize=256)
def _template(
    sizes: tuple[int, int, int],
    strides: tuple[int, ...],
    variant: tuple[Any, ...],
    threads: int,
    target: Target,
    max_blocks: tuple[int, int],
) -> _Template:
    """Return the template for M, K, N and blocks of at most `max_blocks` of K and N.

    Cached, because building it takes longer than a small product.
    """
    m, k, n = sizes
    if variant[2:] == ("tiles",):
        tile = Tile(2 * amx.ROWS, 2, amx.ROWS)
    else:  # a product of integers passes through one more register before it is added
        tile = cheapest(target if len(variant) == 2 else replace(target, registers=target.registers - 1), m, n)
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
    values |= dict.fromkeys(_ADDRESSES, 0) | dict(zip(_STRIDES, strides, strict=True))
    kernel = jit.load(build, target, tile.rows, tile.vectors, *variant)
    return _Template(kernel, pack_arguments(FIELDS, values), (threads * mc * kc, nc * kc))


def _contiguous_axis(matrix: np.ndarray) -> np.ndarray:
    """Return the matrix if its rows or its columns are contiguous, else a copy."""
    rows, columns = matrix.strides
    contiguous = (columns == 4 and rows > 0 and rows % 4 == 0) or (rows == 4 and columns > 0 and columns % 4 == 0)
    return matrix if contiguous else np.ascontiguousarray(matrix)


# -- the generated code


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
