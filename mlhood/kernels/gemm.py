"""The ladder of the matrix product c[M, N] = a[M, K] @ b[K, N] in float32, from the definition to generated code.

Every rung accepts any shape, also an empty one, and any strides; the results agree up to rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import parallel

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


def check_shapes(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int]:
    """Return M, K and N.

    Raises:
        KernelError: If a and b are not float32 matrices of conforming shapes.
    """
    for name, matrix in (("a", a), ("b", b)):
        if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype != np.float32:
            got = f"{matrix.dtype} {list(matrix.shape)}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
            raise KernelError(
                f"{name} is not a matrix of float32",
                expected="a two-dimensional NumPy array of float32",
                got=got,
                todo=f"convert it: np.asarray({name}, np.float32)",
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


GEMM: dict[str, Gemm] = {rung.__name__: rung for rung in (naive, packed, vectorised, blas)}
"""Rungs of the ladder of matrix products that P3 climbs: `(a[M,K], b[K,N]) -> c[M,N]` by name."""
