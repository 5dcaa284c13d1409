"""The ladder of the matrix product c[M, N] = a[M, K] @ b[K, N] in float32, from the definition to generated code.

Every rung accepts any shape, also an empty one, and any strides; the results agree up to rounding. Beside them is the
product of bytes that quantised networks use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import parallel

if TYPE_CHECKING:
    from mlhood.kernels.codegen.target import Target

Gemm = Callable[..., np.ndarray]


def naive(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply by the definition: for each row, for each column, a sum over k.

    Args:
        a: float32 [M, K].
        b: float32 [K, N].
        threads: Number of threads, which share the rows; `parallel.threads()` by default.

    Returns:
        float32 [M, N].

    Raises:
        KernelError: If dtypes or shapes are invalid.
    """
    return _run_loops("gemm_naive", a, b, threads)


def packed(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with blocks of b packed contiguously, four rows at a time. Arguments as for `naive`."""
    return _run_loops("gemm_packed", a, b, threads)


def vectorised(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with a microkernel generated for this machine. Arguments as for `naive`."""
    from mlhood.kernels.vectorised import multiply

    count = parallel.resolve_threads(threads)
    m, k, n = check_shapes(a, b)
    return multiply(a, b, count) if m and k and n else np.zeros((m, n), np.float32)


def blas(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with NumPy's BLAS. Arguments as for `naive`."""
    check_shapes(a, b)
    with _thread_pools().limit(limits=parallel.resolve_threads(threads), user_api="blas"):
        return a @ b


@functools.cache
def _thread_pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def check_shapes(
    a: np.ndarray, b: np.ndarray, dtypes: tuple[type, type] = (np.float32, np.float32)
) -> tuple[int, int, int]:
    """Return M, K and N.

    Raises:
        KernelError: If a and b are not matrices of these dtypes and conforming shapes.
    """
    for name, matrix, dtype in (("a", a, dtypes[0]), ("b", b, dtypes[1])):
        if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype != dtype:
            kind = np.dtype(dtype)
            got = f"{matrix.dtype} {list(matrix.shape)}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
            raise KernelError(
                f"{name} is not a matrix of {kind}",
                expected=f"a two-dimensional NumPy array of {kind}",
                got=got,
                todo=f"convert it: np.asarray({name}, np.{kind})",
            )
    if a.shape[1] != b.shape[0]:
        expected, got = "a[M, K] and b[K, N]", f"a{list(a.shape)} and b{list(b.shape)}"
        raise KernelError("the shapes of the matrices do not conform", expected=expected, got=got)
    return a.shape[0], a.shape[1], b.shape[1]


def _run_loops(name: str, a: np.ndarray, b: np.ndarray, threads: int | None) -> np.ndarray:
    from mlhood.kernels import loops  # importing Numba takes half a second, which the generated kernels do not need

    count = parallel.resolve_threads(threads)
    m, _, n = check_shapes(a, b)
    c, loop = np.zeros((m, n), np.float32), getattr(loops, name)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    parallel.parallel_for(lambda first, stop: loop(a[first:stop], b, c[first:stop]), m, count)
    return c


def int8_product(
    a: np.ndarray, b: np.ndarray, *, threads: int | None = None, target: Target | None = None
) -> np.ndarray:
    """Return the product u8 [M, K] times s8 [K, N] in 32-bit integers, which wrap around on overflow as NumPy's do.

    Args:
        a: uint8 [M, K].
        b: int8 [K, N].
        threads: Number of threads; `parallel.threads()` by default.
        target: The processor; the host by default.

    Returns:
        int32 [M, N].

    Raises:
        KernelError: If dtypes or shapes are invalid.
    """
    from mlhood.kernels.vectorised import multiply_bytes

    count = parallel.resolve_threads(threads)
    m, k, n = check_shapes(a, b, (np.uint8, np.int8))
    if not (m and k and n):
        return np.zeros((m, n), np.int32)
    return multiply_bytes(a, b, count, target)


GEMM: dict[str, Gemm] = {rung.__name__: rung for rung in (naive, packed, vectorised, blas)}
"""Rungs of the ladder of matrix products that P3 climbs: `(a[M,K], b[K,N]) -> c[M,N]` by name."""
