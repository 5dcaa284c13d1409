"""The matrix product's ladder: c[M, N] = a[M, K] @ b[K, N] in float32, every rung a function of its own.

Every rung takes any shape, also an empty one, and any strides; all give the same result but for rounding.
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
    """Multiply by the definition: for each row, for each column, the sum over k.

    Args:
        a: float32 [M, K].
        b: float32 [K, N].
        threads: Rows are shared between them; None: what `parallel.threads` says.

    Returns:
        float32 [M, N].

    Raises:
        KernelError: If a and b do not fit together.
    """
    return _by_loops("gemm_naive", a, b, threads)


def reordered(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with the loops in the order i, k, j: all inner loops walk along rows. Arguments as for `naive`."""
    return _by_loops("gemm_reordered", a, b, threads)


def blocked(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply block by block, so that blocks are used again while in the cache. Arguments as for `naive`."""
    return _by_loops("gemm_blocked", a, b, threads)


def packed(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with blocks of b copied into one piece, four rows at a time. Arguments as for `naive`."""
    return _by_loops("gemm_packed", a, b, threads)


def vectorised(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with a microkernel generated for this machine. Arguments as for `naive`."""
    from mlhood.kernels.vectorised import multiply

    count = parallel.checked(threads)
    m, k, n = check_product(a, b)
    return multiply(a, b, count) if m and k and n else np.zeros((m, n), np.float32)


def blas(a: np.ndarray, b: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """Multiply with the library that NumPy uses. Arguments as for `naive`."""
    check_product(a, b)
    with _libraries().limit(limits=parallel.checked(threads), user_api="blas"):
        return a @ b


@functools.cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def check_product(a: np.ndarray, b: np.ndarray) -> tuple[int, int, int]:
    """Return M, K and N.

    Raises:
        KernelError: If a and b are not float32 matrices that fit together.
    """
    for name, matrix in (("a", a), ("b", b)):
        if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype != np.float32:
            got = f"{matrix.dtype} {list(matrix.shape)}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
            raise KernelError(f"{name} is not a matrix of float32", expected="a NumPy array, two dimensions, float32",
                              got=got, todo="convert it: np.asarray(x, np.float32)")  # fmt: skip
    if a.shape[1] != b.shape[0]:
        raise KernelError("the matrices do not fit together", expected="a[M, K] and b[K, N]",
                          got=f"a{list(a.shape)} and b{list(b.shape)}")  # fmt: skip
    return a.shape[0], a.shape[1], b.shape[1]


def _by_loops(name: str, a: np.ndarray, b: np.ndarray, threads: int | None) -> np.ndarray:
    from mlhood.kernels import loops  # Numba takes half a second to load, which the generated kernels do without

    count = parallel.checked(threads)
    m, _, n = check_product(a, b)
    c, loop = np.zeros((m, n), np.float32), getattr(loops, name)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    parallel.share(lambda first, stop: loop(a[first:stop], b, c[first:stop]), m, count)
    return c


GEMM: dict[str, Gemm] = {
    "naive": naive,
    "reordered": reordered,
    "blocked": blocked,
    "packed": packed,
    "vectorised": vectorised,
    "blas": blas,
}
