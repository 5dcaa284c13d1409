"""Matrix products with a packed right factor, prepared once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.kernels.codegen import jit, packing
from mlhood.kernels.codegen.microkernel import CACHE_LINE, Tile, candidates
from mlhood.kernels.codegen.product_kernel import FIELDS, UNROLL, build
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.parallel import aligned

Clip = tuple[float, float]
UNBOUNDED: Clip = (-math.inf, math.inf)
_TASKS_PER_THREAD = 8
_CACHED_BYTES = 256 * 1024  # of a right factor that stays in the second-level cache from run to run


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
    clip: Clip | None = None,
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
        clip: Bounds that the result is clamped to; None for none.
        a_ld: Elements between the rows of a; K by default.
        c_ld: Elements between the rows of c; N by default.
        threads: Number of threads.
        target: The processor; the host by default.
        tile: The register tile; by default the cheapest.
        name: For reports.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`; they replace the clamping.
    """
    target = target or host()
    is_packed = tile is not None and b is not None and b.ndim >= 3 and b.shape[-2:] == (sizes.k, tile.columns)
    tile = tile or choose(sizes, target)
    weights = b if b is None or is_packed else pack(np.asarray(b, np.float32), tile.columns)
    panels = -(-sizes.n // tile.columns)
    padded = None if bias is None else np.zeros(panels * tile.columns, np.float32)
    if padded is not None:
        padded[: sizes.n] = bias
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
        "bias": 0 if padded is None else padded.ctypes.data,
    }
    floor, ceiling = clip or UNBOUNDED
    ahead, steps = _ahead(sizes, tile, values["chunk_rows"]), checked_steps(epilogue, 1)
    kernel = jit.load(build, target, tile.rows, tile.vectors, sizes.m % tile.rows, steps, ahead)
    keep = tuple(array for array in (weights, padded) if array is not None)
    floats, operands = {"floor": floor, "ceiling": ceiling}, ("a", "c") if weights is not None else ("a", "b", "c")
    return native_call(kernel, FIELDS, values, operands, floats=floats, keep=keep, name=name)


def pack_at_run_time(
    sizes: ProductSizes, tile: Tile, group: int | None = None, *, transposed: bool = False, target: Target | None = None
) -> NativeCall:
    """Prepare the packing of a batch of factors b into panels: operands "source" and "out", float32.

    Args:
        sizes: The sizes.
        tile: The register tile.
        group: Elements from one factor to the next; N K by default.
        transposed: Whether the source is [batch, N, K] (else [batch, K, N]).
        target: The processor; the host by default.
    """
    panels = -(-sizes.n // tile.columns)
    values = {
        "tasks": sizes.batch * panels,
        "blocks": panels,
        "group": sizes.n * sizes.k if group is None else group,
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
