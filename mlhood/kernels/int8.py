"""The matrix product of bytes: u8 [M, K] times s8 [K, N] into s32 [M, N], as quantised networks need it."""

from __future__ import annotations

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import parallel, vectorised
from mlhood.kernels.codegen.target import Target


def int8_product(
    a: np.ndarray, b: np.ndarray, *, threads: int | None = None, target: Target | None = None
) -> np.ndarray:
    """Return the exact product in 32-bit integers, which wrap around as NumPy's do.

    Args:
        a: uint8 [M, K].
        b: int8 [K, N].
        threads: How many; None: what `parallel.threads` says.
        target: The processor, the host if None.

    Returns:
        int32 [M, N].

    Raises:
        KernelError: If a and b are not such matrices, or do not fit together.
    """
    count = parallel.checked(threads)
    for name, matrix, kind in (("a", a, np.uint8), ("b", b, np.int8)):
        if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype != kind:
            got = f"{matrix.dtype} {list(matrix.shape)}" if isinstance(matrix, np.ndarray) else type(matrix).__name__
            raise KernelError(f"{name} is not a matrix of {np.dtype(kind)}", got=got)
    if a.shape[1] != b.shape[0]:
        raise KernelError("the matrices do not fit together", expected="a[M, K] and b[K, N]",
                          got=f"a{list(a.shape)} and b{list(b.shape)}")  # fmt: skip
    if not (a.size and b.size):
        return np.zeros((a.shape[0], b.shape[1]), np.int32)
    missing = -a.shape[1] % 4
    a = np.pad(a, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(a)
    b = np.pad(b, ((0, missing), (0, 0))) if missing else np.ascontiguousarray(b)
    return vectorised.multiply_bytes(a, b, count, target)
