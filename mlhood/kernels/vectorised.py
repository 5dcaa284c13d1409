"""The vectorised rung of the matrix product's ladder: packed panels around a generated microkernel."""

from __future__ import annotations

import numpy as np

from mlhood.kernels import native, parallel
from mlhood.kernels.gemm_code import FIELDS, build
from mlhood.kernels.memory import aligned
from mlhood.kernels.microkernel import Tile, cheapest
from mlhood.kernels.plan import fill
from mlhood.kernels.target import Target, host

KC, NC, ROWS = 512, 2016, 112  # a panel of b: half of a second-level cache of 256 KiB; see `mlhood bench gemm`


def multiply(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b for float32 [M, K] and [K, N], none of them empty."""
    a, b = _in_one_piece(a), _in_one_piece(b)
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    (a_row, a_k), (b_k, b_column) = (s // 4 for s in a.strides), (s // 4 for s in b.strides)
    across = a.strides[1] == 4, b.strides[1] != 4
    layout = {
        "a_row": a_row, "a_k": a_k, "a_ld": a_row if across[0] else a_k,
        "b_column": b_column, "b_k": b_k, "b_ld": b_column if across[1] else b_k,
    }  # fmt: skip
    return _run(a, b, c, layout, across, threads, target or host())


def multiply_bytes(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b in int32 for uint8 [M, K] and int8 [K, N] without gaps, K a multiple of 4, none of them empty."""
    c = np.empty((a.shape[0], b.shape[1]), np.int32)
    words, n = a.view(np.int32), b.shape[1]
    k = words.shape[1]
    layout = {"a_row": k, "a_k": 1, "a_ld": k, "b_column": 1, "b_k": 4 * n, "b_ld": n}
    return _run(words, b, c, layout, (True, False, True), threads, target or host())


def _run(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    layout: dict[str, int],
    variant: tuple[bool, ...],
    threads: int,
    target: Target,
) -> np.ndarray:
    """Run the kernel that `gemm_code.build` writes for a variant: its last arguments."""
    (m, k), n = a.shape, c.shape[1]
    tile = cheapest(target, m, n)
    function = native.load(build, target, tile.rows, tile.vectors, *variant)
    kc, nc = min(KC, k), min(-(-NC // tile.columns), -(-n // tile.columns)) * tile.columns
    mc = _rows_of_a_task(m, tile, threads)
    rounds_k, rounds_n = -(-k // kc), -(-n // nc)
    pack_tasks, row_tasks = nc // tile.columns, -(-m // mc)
    packed_a, packed_b = aligned(threads * mc * kc), aligned(nc * kc)
    plan = fill(FIELDS, {
        "tasks": rounds_k * rounds_n * (pack_tasks + row_tasks), "rounds_k": rounds_k,
        "pack_tasks": pack_tasks, "row_tasks": row_tasks, "m": m, "n": n, "k": k, "mc": mc, "nc": nc, "kc": kc,
        "a": a.ctypes.data, "b": b.ctypes.data, "c": c.ctypes.data, "ldc": n,
        "packed_a": packed_a.ctypes.data, "packed_b": packed_b.ctypes.data,
    } | layout)  # fmt: skip
    parallel.run(function, plan, (a, b, c, packed_a, packed_b), threads)
    return c


def _in_one_piece(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix whose rows or columns are neighbours in memory, copied if need be."""
    rows, columns = matrix.strides
    contiguous = (columns == 4 and rows > 0 and rows % 4 == 0) or (rows == 4 and columns > 0 and columns % 4 == 0)
    return matrix if contiguous else np.ascontiguousarray(matrix)


def _rows_of_a_task(m: int, tile: Tile, threads: int) -> int:
    """Return how many rows of a are one task: few enough that all threads end at about the same time."""
    most = max(1, ROWS // tile.rows)
    fair = -(-m // (tile.rows * threads * 4)) if threads > 1 else most
    return tile.rows * max(1, min(most, fair))
