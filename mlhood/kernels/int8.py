"""The matrix product of bytes, u8 [M, K] times s8 [K, N] into s32 [M, N], that quantised networks use."""

from __future__ import annotations

import numpy as np

from mlhood.kernels import parallel, vectorised
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.gemm import check_shapes


def int8_product(
    a: np.ndarray, b: np.ndarray, *, threads: int | None = None, target: Target | None = None
) -> np.ndarray:
    """Return the product in 32-bit integers, which wrap around on overflow as NumPy's do.

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
    count = parallel.resolve_threads(threads)
    m, k, n = check_shapes(a, b, (np.uint8, np.int8))
    if not (m and k and n):
        return np.zeros((m, n), np.int32)
    missing = -k % 4
    a = np.pad(a, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(a)
    b = np.pad(b, ((0, missing), (0, 0))) if missing else np.ascontiguousarray(b)
    return vectorised.multiply_bytes(a, b, count, target)
