"""Batches of matrix products with packed right factors: c[m, n] = steps(a[m, :] b[:, n] + bias[n]).

The rows of a are read where they are. b is packed into panels [columns / width, k, width], zero-padded in the last one.
Rows that do not fill a register tile have their own microkernel, so no row is computed in vain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import jit, packing
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import CACHE_LINE, MicrokernelSpec, Tile, candidates, microkernel
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.parallel import aligned

_TASKS_PER_THREAD = 8
_CACHED_BYTES = 256 * 1024  # of a right factor that stays in the second-level cache from run to run
_TASKS = ("tasks", "row_chunks", "panel_chunks", "chunk_rows", "chunk_panels", "panels")
_OPERANDS = ("a", "a_batch", "a_ld", "b", "b_batch", "b_panel", "c", "c_batch", "c_ld", "bias")
FIELDS = (*_TASKS, "m", "n", "k", *_OPERANDS)
UNROLL = 4


@dataclass(frozen=True)
class ProductSizes:
    """The sizes of a batch of products a[m, k] b[k, n].

    Args:
        m: Rows of each a.
        n: Columns of each b.
        k: Columns of each a.
        batch: Number of products.
    """

    m: int
    n: int
    k: int
    batch: int = 1


def choose(sizes: ProductSizes, target: Target, columns: int | None = None) -> Tile:
    """Return the register tile with the lowest estimated cost.

    Args:
        sizes: The sizes.
        target: The processor.
        columns: A number that the tile's columns must divide; None for any.
    """
    tiles = [tile for tile in candidates(target) if columns is None or columns % tile.columns == 0]
    fitting = [tile for tile in tiles if tile.rows <= sizes.m] or tiles
    return min(fitting, key=lambda tile: (cost(sizes, tile), -tile.columns))


def cost(sizes: ProductSizes, tile: Tile) -> float:
    """Return the estimated cycles of a product, per k: those of full tiles, and of the one with the remaining rows."""
    full, rest = divmod(sizes.m, tile.rows)
    below = Tile(rest, tile.vectors, tile.lanes).cycles if rest else 0
    return -(-sizes.n // tile.columns) * (full * tile.cycles + below)


def pack(b: np.ndarray, width: int) -> np.ndarray:
    """Return b [..., K, N] as [..., ceil(N / width), K, width], zero-padded, aligned to a cache line."""
    *batch, k, n = b.shape
    panels = -(-n // width)
    count = math.prod(batch)
    out = aligned(count * panels * k * width).reshape(count, panels, k, width)
    for source, target in zip(b.reshape(count, k, n), out, strict=True):
        for i in range(panels):
            part = source[:, i * width : (i + 1) * width]
            target[i, :, : part.shape[1]] = part
            target[i, :, part.shape[1] :] = 0
    return out.reshape(*batch, panels, k, width)


def prepare(
    sizes: ProductSizes,
    b: np.ndarray | None,
    bias: np.ndarray | None = None,
    *,
    a_ld: int | None = None,
    c_ld: int | None = None,
    threads: int = 1,
    target: Target | None = None,
    tile: Tile | None = None,
    name: str = "product",
    epilogue: Sequence[Step] = (),
) -> NativeCall:
    """Prepare c = a b for constant b: operands "a" float32 [batch, m, a_ld] and "c" float32 [batch, m, c_ld].

    Args:
        sizes: The sizes.
        b: float32 [K, N] or [batch, K, N]; or what `pack` made of it, if a tile is given. None if it is only known at
            run time, as the operand "b", in panels as `pack_at_run_time` makes them.
        bias: float32 [N] or None.
        a_ld: Elements between the rows of a; K by default.
        c_ld: Elements between the rows of c; N by default.
        threads: Number of threads.
        target: The processor; the host by default.
        tile: The register tile; by default the cheapest.
        name: For reports.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`.
    """
    target = target or host()
    is_packed = tile is not None and b is not None and b.ndim >= 3 and b.shape[-2:] == (sizes.k, tile.columns)
    tile = tile or choose(sizes, target)
    weights = b if b is None or is_packed else pack(np.asarray(b, np.float32), tile.columns)
    panels = -(-sizes.n // tile.columns)
    padded = np.zeros(panels * tile.columns, np.float32)
    padded[: sizes.n] = 0 if bias is None else bias
    a_ld, c_ld = sizes.k if a_ld is None else a_ld, sizes.n if c_ld is None else c_ld
    values = chunks(sizes, tile, panels, threads) | {
        "m": sizes.m,
        "n": sizes.n,
        "k": sizes.k,
        "a_batch": sizes.m * a_ld,
        "a_ld": a_ld,
        "b": 0 if weights is None else weights.ctypes.data,
        "b_batch": panels * sizes.k * tile.columns if sizes.batch > 1 else 0,
        "b_panel": sizes.k * tile.columns,
        "c_batch": sizes.m * c_ld,
        "c_ld": c_ld,
        "bias": padded.ctypes.data,
    }
    ahead, steps = _ahead(sizes, tile, values["chunk_rows"]), checked_steps(epilogue)
    kernel = jit.load(build, target, tile.rows, tile.vectors, sizes.m % tile.rows, steps, ahead)
    keep, operands = ((padded,), ("a", "b", "c")) if weights is None else ((weights, padded), ("a", "c"))
    return native_call(kernel, FIELDS, values, operands, keep=keep, name=name)


def pack_at_run_time(
    sizes: ProductSizes, tile: Tile, *, transposed: bool = False, target: Target | None = None
) -> NativeCall:
    """Prepare the packing of a batch of factors b into panels: operands "source" and "out", float32.

    Args:
        sizes: The sizes.
        tile: The register tile.
        transposed: Whether the source is [batch, N, K] (else [batch, K, N]).
        target: The processor; the host by default.
    """
    panels = -(-sizes.n // tile.columns)
    values = {
        "tasks": sizes.batch * panels,
        "blocks": panels,
        "group": sizes.n * sizes.k,
        "ld": sizes.k if transposed else sizes.n,
        "count": sizes.n,
        "depth": sizes.k,
    }
    kernel = jit.load(packing.build, target or host(), tile.columns, transposed)
    return native_call(kernel, packing.FIELDS, values, ("source", "out"), name="pack")


def _ahead(sizes: ProductSizes, tile: Tile, rows: int) -> int:
    """Return the cache lines per iteration that the tiles of a chunk of rows prefetch of the next panel."""
    tiles = -(-rows // tile.rows)
    if tiles == 1 or 4 * sizes.k * sizes.n * sizes.batch <= _CACHED_BYTES:
        return 0
    return -(-tile.columns * UNROLL // (CACHE_LINE * tiles))


def chunks(sizes: ProductSizes, tile: Tile, panels: int, threads: int) -> dict[str, int]:
    """Return how the work is divided: enough tasks to balance the threads, of whole tiles."""
    tiles = max(1, -(-sizes.m // tile.rows))
    wanted = 1 if threads == 1 else -(-threads * _TASKS_PER_THREAD // max(1, sizes.batch))
    panel_chunks = min(panels, wanted)
    chunk_panels = -(-panels // max(1, panel_chunks))
    panel_chunks = -(-panels // max(1, chunk_panels))
    row_chunks = min(tiles, -(-wanted // max(1, panel_chunks)))
    chunk_rows = -(-tiles // row_chunks) * tile.rows
    row_chunks = max(1, -(-sizes.m // chunk_rows))
    is_empty = not (sizes.m and sizes.n and sizes.batch)
    return {
        "tasks": 0 if is_empty else sizes.batch * row_chunks * panel_chunks,
        "row_chunks": row_chunks,
        "panel_chunks": panel_chunks,
        "chunk_rows": chunk_rows,
        "chunk_panels": chunk_panels,
        "panels": panels,
    }


# -- the generated code


def build(target: Target, rows: int, vectors: int, rest: int, epilogue: tuple[Step, ...] = (), ahead: int = 0) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of the register tile.
        vectors: Vector registers in one of its rows.
        rest: Rows that remain below the last full tile; 0 for none.
        epilogue: Steps that are applied to the result.
        ahead: Cache lines per iteration that are prefetched of the next panel of b.
    """
    module = ir.Module()
    options: Any = {"bias_axis": "columns", "unroll": UNROLL, "epilogue": epilogue, "ahead": ahead}
    heights = [height for height in (rows, rest) if height]
    kernels = {
        height: microkernel(
            module,
            f"multiply_{height}",
            MicrokernelSpec(Tile(height, vectors, target.lanes), None, **options),
            target,
        )
        for height in heights
    }
    return _LoopNest(Arguments(FIELDS, module), Tile(rows, vectors, target.lanes), rest, kernels, ahead).build()


class _LoopNest:
    """The loops around the microkernels."""

    def __init__(
        self, arguments: Arguments, tile: Tile, rest: int, kernels: dict[int, FunctionBuilder], ahead: int
    ) -> None:
        self.arguments, self.tile, self.rest, self.kernels, self.ahead = arguments, tile, rest, kernels, ahead
        self.code = code = arguments.code
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.edge = code.buffer(tile.rows * tile.columns)
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))

    def build(self) -> str:
        """Build the function: a task multiplies a chunk of rows with a chunk of panels, of one product."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            row_chunk = task % f["row_chunks"]
            panel_chunk, batch = (
                task // f["row_chunks"] % f["panel_chunks"],
                task // f["row_chunks"] // f["panel_chunks"],
            )
            first = panel_chunk * f["chunk_panels"]
            with self.code.loop(first, (first + f["chunk_panels"]).minimum(f["panels"])) as panel:
                self._panel(batch, panel, row_chunk * f["chunk_rows"])
        return self.arguments.finished()

    def _panel(self, batch: Int, panel: Int, first: Int) -> None:
        f, builder, column = self.field, self.code.builder, panel * self.tile.columns
        b = self.arguments.pointer("b").at(batch * f["b_batch"] + panel * f["b_panel"])
        bias = self.arguments.pointer("bias").at(column)
        a = self.arguments.pointer("a").at(batch * f["a_batch"])
        c = self.arguments.pointer("c").at(batch * f["c_batch"] + column)
        columns = (f["n"] - column).minimum(self.tile.columns)
        last = (first + f["chunk_rows"]).minimum(f["m"])
        full = last - (last - first) % self.tile.rows
        with self.code.loop(first, full, self.tile.rows) as row:
            self._tile(self.tile.rows, row, a, b, c, bias, columns, row - first)
        if self.rest:  # only the last chunk has fewer rows than full tiles
            with builder.if_then(full < last):
                self._tile(self.rest, full, a, b, c, bias, columns, full - first)

    def _tile(
        self, rows: int, row: Int, a: Pointer, b: Pointer, c: Pointer, bias: Pointer, columns: Int, done: Int
    ) -> None:
        """Compute a tile; the `done` rows of its chunk have been computed."""
        f, width = self.field, self.tile.columns
        source, out = a.at(row * f["a_ld"]), c.at(row * f["c_ld"])
        ahead = b.at(f["b_panel"] + done // self.tile.rows * (f["k"] // UNROLL * self.ahead * CACHE_LINE))
        with self.code.builder.if_else(columns.equals(width)) as (full, partial):
            with full:
                self._multiply(rows, source, b, out, f["c_ld"], bias, ahead)
            with partial:
                self._multiply(rows, source, b, self.edge, self.code.constant(width), bias, ahead)
                with self.code.loop(0, rows) as m, self.code.loop(0, columns) as n:
                    out.at(m * f["c_ld"] + n).store(self.edge.at(m * width + n).load())

    def _multiply(
        self, rows: int, a: Pointer, b: Pointer, out: Pointer, ld: Int, bias: Pointer, ahead: Pointer
    ) -> None:
        f, null, zero = self.field, self.null, self.code.constant(0)
        arguments: list[Any] = [a, b, null, f["k"], null, zero, out, ld, bias, null, f["a_ld"]]
        self.code.call(self.kernels[rows], *arguments, *([ahead] if self.ahead else []))
