"""The rungs of the ladders before the microkernel: loop nests that Numba compiles and caches on disk.

Sums are accumulated in float32, as in the libraries.
"""

from __future__ import annotations

import numpy as np
from numba import njit

PANEL = 256
ROWS = 4

# contract: a multiplication and an addition may be fused into one instruction, which rounds once
compiled = njit(cache=True, nogil=True, fastmath={"contract"})


@compiled
def gemm_naive(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """for i: for j: for k: the definition; walks down the columns of b, touching a cache line per element."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = np.float32(0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


@compiled
def gemm_packed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Panels of b are packed contiguously; four rows at a time share each load of b."""
    (m, depth), n = a.shape, b.shape[1]
    panel, sums = np.empty((depth, PANEL), np.float32), np.empty((ROWS, PANEL), np.float32)
    for j0 in range(0, n, PANEL):
        width = min(PANEL, n - j0)
        panel[:, :width] = b[:, j0 : j0 + width]
        panel[:, width:] = np.float32(0)
        whole = m - m % ROWS
        for i in range(0, whole, ROWS):
            _four_rows(a[i : i + ROWS], panel, sums)
            c[i : i + ROWS, j0 : j0 + width] = sums[:, :width]
        for i in range(whole, m):
            _one_row(a[i], panel, sums[0])
            c[i, j0 : j0 + width] = sums[0, :width]


@compiled
def _four_rows(a: np.ndarray, panel: np.ndarray, sums: np.ndarray) -> None:
    sums[:] = np.float32(0)
    s0, s1, s2, s3 = sums[0], sums[1], sums[2], sums[3]
    for k in range(panel.shape[0]):
        for j in range(PANEL):
            value = panel[k, j]
            s0[j] += a[0, k] * value
            s1[j] += a[1, k] * value
            s2[j] += a[2, k] * value
            s3[j] += a[3, k] * value


@compiled
def _one_row(a: np.ndarray, panel: np.ndarray, sums: np.ndarray) -> None:
    sums[:] = np.float32(0)
    for k in range(panel.shape[0]):
        for j in range(PANEL):
            sums[j] += a[k] * panel[k, j]


@compiled
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
    """The definition, for output channels `first` to `stop`; x[N, C, H, W] is padded already."""
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
