"""The vectorised rung of the matrix product's ladder: packed panels around a generated microkernel."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from mlhood.kernels import parallel
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import fill, place_of
from mlhood.kernels.codegen.gemm_kernel import FIELDS, build
from mlhood.kernels.codegen.microkernel import Tile, cheapest
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.memory import scratch

KC, NC, ROWS = 512, 2016, 112  # a panel of b: half of a second-level cache of 256 KiB; see `mlhood bench gemm`
_TASKS_OF_A_THREAD = 8
_LAYOUT = ("a_row", "a_k", "a_ld", "b_column", "b_k", "b_ld")
_PACKED = ("packed_a", "packed_b")
_ADDRESSES = ("a", "b", "c", *_PACKED)
_PLACES = [place_of(FIELDS, name) for name in _ADDRESSES]


@dataclass(frozen=True)
class _Template:
    """What is the same in all products of a shape.

    Args:
        kernel: The native function.
        words: Its plan, in which only addresses are missing.
        packed: float32 of scratch for panels of a and of b.
    """

    kernel: jit.Kernel
    words: np.ndarray
    packed: tuple[int, int]


def multiply(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b for float32 [M, K] and [K, N], none of them empty."""
    a, b = _in_one_piece(a), _in_one_piece(b)
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    (a_row, a_k), (b_k, b_column) = (s // 4 for s in a.strides), (s // 4 for s in b.strides)
    across = a.strides[1] == 4, b.strides[1] != 4
    layout = a_row, a_k, a_row if across[0] else a_k, b_column, b_k, b_column if across[1] else b_k
    return _run(a, b, c, layout, across, threads, target or host())


def multiply_bytes(a: np.ndarray, b: np.ndarray, threads: int, target: Target | None = None) -> np.ndarray:
    """Return a @ b in int32 for uint8 [M, K] and int8 [K, N] without gaps, K a multiple of 4, none of them empty."""
    c = np.empty((a.shape[0], b.shape[1]), np.int32)
    words, n = a.view(np.int32), b.shape[1]
    k = words.shape[1]
    return _run(words, b, c, (k, 1, k, 1, 4 * n, n), (True, False, True), threads, target or host())


def _run(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    layout: tuple[int, ...],
    variant: tuple[bool, ...],
    threads: int,
    target: Target,
) -> np.ndarray:
    """Run the kernel that `gemm_code.build` writes for a variant, its last arguments; `_LAYOUT` names the layout's."""
    template = _template((*a.shape, c.shape[1]), layout, variant, threads, target, (KC, NC))
    packed = [scratch(name, size) for name, size in zip(_PACKED, template.packed, strict=True)]
    plan, arrays = template.words.copy(), (a, b, c, *packed)
    plan[_PLACES] = [one.__array_interface__["data"][0] for one in arrays]
    parallel.run(template.kernel, plan, arrays, threads)
    return c


@functools.lru_cache(maxsize=256)
def _template(
    sizes: tuple[int, int, int],
    layout: tuple[int, ...],
    variant: tuple[bool, ...],
    threads: int,
    target: Target,
    most: tuple[int, int],
) -> _Template:
    """Return the template for M, K, N and at most `most` of K and N in a round: making it takes longer than small c."""
    m, k, n = sizes
    tile = cheapest(target, m, n)
    kc, nc = min(most[0], k), min(-(-most[1] // tile.columns), -(-n // tile.columns)) * tile.columns
    mc = _rows_of_a_task(m, tile, threads)
    rounds_k, rounds_n = -(-k // kc), -(-n // nc)
    pack_tasks, row_tasks = nc // tile.columns, -(-m // mc)
    values = {
        "tasks": rounds_k * rounds_n * (pack_tasks + row_tasks), "rounds_k": rounds_k,
        "pack_tasks": pack_tasks, "row_tasks": row_tasks, "m": m, "n": n, "k": k, "mc": mc, "nc": nc, "kc": kc,
        "ldc": n,
    }  # fmt: skip
    values |= dict.fromkeys(_ADDRESSES, 0) | dict(zip(_LAYOUT, layout, strict=True))
    function = jit.load(build, target, tile.rows, tile.vectors, *variant)
    return _Template(function, fill(FIELDS, values), (threads * mc * kc, nc * kc))


def _in_one_piece(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix whose rows or columns are neighbours in memory, copied if need be."""
    rows, columns = matrix.strides
    contiguous = (columns == 4 and rows > 0 and rows % 4 == 0) or (rows == 4 and columns > 0 and columns % 4 == 0)
    return matrix if contiguous else np.ascontiguousarray(matrix)


def _rows_of_a_task(m: int, tile: Tile, threads: int) -> int:
    """Return how many rows of a are one task: few enough that all threads end at about the same time."""
    most = max(1, ROWS // tile.rows)
    fair = -(-m // (tile.rows * threads * _TASKS_OF_A_THREAD)) if threads > 1 else most
    return tile.rows * max(1, min(most, fair))
