"""The windows of an image as columns of a matrix, and the way back: what a convolution's gradient is made of.

`columns` copies each pixel into every window that covers it; its transpose, `scatter`, adds up what comes back from
them. In symbols: sum(columns(x) * c) = sum(x * scatter(c)) for all x and c.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.errors import AutodiffError
from mlhood.kernels.geometry import Geometry, Pair, geometry


def columns(x: np.ndarray, kernel: Pair, stride: Pair = 1, padding: Pair = 0, fill: float = 0.0) -> np.ndarray:
    """Return all windows, one a column: im2col.

    Args:
        x: [N, C, H, W].
        kernel: KH and KW, or one number for both.
        stride: One number, or down and right.
        padding: One number, (down, right) for both sides, or (top, left, bottom, right).
        fill: What stands in the padding.

    Returns:
        [N, C * KH * KW, OH * OW]: rows in the order channel, row, column of a window, columns in that of the result.

    Raises:
        KernelError: There is no such window.
    """
    g = _geometry(x.shape, kernel, stride, padding)
    top, left, bottom, right = g.padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    windows = sliding_window_view(padded, g.kernel, (2, 3))[:, :, :: g.stride[0], :: g.stride[1]]
    return windows.transpose(0, 1, 4, 5, 2, 3).reshape(g.images, g.depth, -1)


def scatter(
    columns: np.ndarray, shape: tuple[int, ...], kernel: Pair, stride: Pair = 1, padding: Pair = 0
) -> np.ndarray:
    """Return an image in which each pixel is the sum over all windows that cover it: col2im, `columns` transposed.

    Args:
        columns: [N, C * KH * KW, OH * OW], as `columns` gives them.
        shape: N, C, H, W of the image.
        kernel: As of `columns`.
        stride: As of `columns`.
        padding: As of `columns`; what lies in it is dropped.

    Returns:
        [N, C, H, W].

    Raises:
        KernelError: There is no such window.
        AutodiffError: The columns are not those of such an image.
    """
    g = _geometry(shape, kernel, stride, padding)
    (high, wide), (down, right), (top, left, _, _) = g.out, g.stride, g.padding
    if columns.shape != (g.images, g.depth, high * wide):
        raise AutodiffError("these are not the columns of such an image", where=f"image {list(shape)}",
                            expected=[g.images, g.depth, high * wide], got=list(columns.shape))  # fmt: skip
    parts = columns.reshape(g.images, g.channels, *g.kernel, high, wide)
    padded = np.zeros((g.images, g.channels, *g.padded), columns.dtype)
    # a loop over the window's places, not over the image's: at one place, windows do not overlap
    for i, j in np.ndindex(*g.kernel):
        padded[:, :, i : i + down * (high - 1) + 1 : down, j : j + right * (wide - 1) + 1 : right] += parts[:, :, i, j]
    return padded[:, :, top : top + g.height, left : left + g.width]


def _geometry(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair) -> Geometry:
    sizes = (kernel, kernel) if isinstance(kernel, int | np.integer) else tuple(kernel)
    return geometry(shape, (1, shape[1] if len(shape) == 4 else 1, *sizes), stride, padding)
