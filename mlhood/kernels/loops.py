"""The loop nests that come before the microkernel, compiled by Numba and kept on disk.

Each function does what the one before does, in another order. Sums run in float32, as in the libraries.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BLOCK = 64  # three blocks of 64 x 64 float32 are 48 KiB: a first-level cache
PANEL = 64


@njit(cache=True, nogil=True)
def gemm_naive(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """for i: for j: for k: the definition; walks down b's columns, a cache line for each number."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = np.float32(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@njit(cache=True, nogil=True)
def gemm_reordered(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """for i: for k: for j: walks along b's and c's rows, which the compiler turns into vectors."""
    for i in range(a.shape[0]):
        c[i] = np.float32(0)
        for k in range(a.shape[1]):
            scale = a[i, k]
            for j in range(b.shape[1]):
                c[i, j] += scale * b[k, j]


@njit(cache=True, nogil=True)
def gemm_blocked(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """The same in blocks of `BLOCK`, so that what is used again is still in the cache."""
    (m, depth), n = a.shape, b.shape[1]
    c[:] = np.float32(0)
    for i0 in range(0, m, BLOCK):
        for k0 in range(0, depth, BLOCK):
            for j0 in range(0, n, BLOCK):
                for i in range(i0, min(i0 + BLOCK, m)):
                    for k in range(k0, min(k0 + BLOCK, depth)):
                        scale = a[i, k]
                        for j in range(j0, min(j0 + BLOCK, n)):
                            c[i, j] += scale * b[k, j]


@njit(cache=True, nogil=True)
def gemm_packed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """The same with four rows at a time and a block of b copied into one piece first: fewer pages, fewer loads."""
    (m, depth), n = a.shape, b.shape[1]
    c[:] = np.float32(0)
    panel = np.empty((4 * BLOCK, PANEL), np.float32)
    for j0 in range(0, n, PANEL):
        width = min(PANEL, n - j0)
        for k0 in range(0, depth, 4 * BLOCK):
            count = min(4 * BLOCK, depth - k0)
            for k in range(count):
                for j in range(width):
                    panel[k, j] = b[k0 + k, j0 + j]
            whole = m - m % 4
            for i in range(0, whole, 4):
                _four_rows(a, panel, c, i, j0, k0, count, width)
            for i in range(whole, m):
                for k in range(count):
                    scale = a[i, k0 + k]
                    for j in range(width):
                        c[i, j0 + j] += scale * panel[k, j]


@njit(cache=True, nogil=True, inline="always")
def _four_rows(
    a: np.ndarray, panel: np.ndarray, c: np.ndarray, i: int, j0: int, k0: int, count: int, width: int
) -> None:
    for k in range(count):
        s0, s1, s2, s3 = a[i, k0 + k], a[i + 1, k0 + k], a[i + 2, k0 + k], a[i + 3, k0 + k]
        for j in range(width):
            value = panel[k, j]
            c[i, j0 + j] += s0 * value
            c[i + 1, j0 + j] += s1 * value
            c[i + 2, j0 + j] += s2 * value
            c[i + 3, j0 + j] += s3 * value


@njit(cache=True, nogil=True)
def conv_naive(
    x: np.ndarray,
    w: np.ndarray,
    y: np.ndarray,
    first: int,
    stop: int,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> None:
    """The definition, for output channels `first` to `stop`; x[N, C, H, W] has its padding around it."""
    images, filters, high, wide = y.shape
    per_group = w.shape[1]
    group_filters = filters // groups
    for n in range(images):
        for f in range(first, stop):
            start = f // group_filters * per_group
            for r in range(high):
                for q in range(wide):
                    total = np.float32(0)
                    for c in range(per_group):
                        for i in range(w.shape[2]):
                            for j in range(w.shape[3]):
                                row, column = r * stride[0] + i * dilation[0], q * stride[1] + j * dilation[1]
                                total += x[n, start + c, row, column] * w[f, c, i, j]
                    y[n, f, r, q] = total
