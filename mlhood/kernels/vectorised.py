"""The vectorised rung of the matrix product's ladder: packed panels and a generated microkernel."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlhood.kernels import parallel
from mlhood.kernels.codegen import amx, jit
from mlhood.kernels.codegen.arguments import pack_arguments, word_index
from mlhood.kernels.codegen.gemm_kernel import FIELDS, build
from mlhood.kernels.codegen.microkernel import Integers, Tile, cheapest
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.parallel import scratch

# Block sizes: a panel of b takes at most half of a second-level cache of 256 KiB; see `mlhood bench gemm`
KC, NC, MC = 512, 2016, 112
_TASKS_PER_THREAD = 8
_LARGEST_SMALL = (2**15 - 1) // (2 * 128)  # of a: the sum of two products with bytes of b fits into 16 bits
_STRIDES = ("a_row", "a_k", "a_ld", "b_column", "b_k", "b_ld")
_PACKED = ("packed_a", "packed_b")
_ADDRESSES = ("a", "b", "c", *_PACKED)
_ADDRESS_WORDS = [word_index(FIELDS, name) for name in _ADDRESSES]


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
    """Run the kernel for `_STRIDES` and for a variant: the trailing arguments of `gemm_kernel.build`."""
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
