"""im2col and its transpose, col2im: what the gradient of a convolution is made of.

`columns` copies each pixel into every window that covers it; its transpose, `scatter`, adds the windows' contributions
up again. In symbols: sum(columns(x) * c) = sum(x * scatter(c)) for all x and c.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.errors import AutodiffError
from mlhood.kernels.geometry import Geometry, Pair, geometry


def columns(x: np.ndarray, kernel: Pair, stride: Pair = 1, padding: Pair = 0, fill: float = 0.0) -> np.ndarray:
    """Return all windows as columns of a matrix: im2col.

    Args:
        x: [N, C, H, W].
        kernel: KH and KW, or one number for both.
        stride: One number, or (down, right).
        padding: One number, (down, right) for both sides, or (top, left, bottom, right).
        fill: The value of the padding.

    Returns:
        [N, C * KH * KW, OH * OW]: rows in the order channel, kernel row, kernel column; columns in that of the output.

    Raises:
        KernelError: The window does not fit the image.
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
        columns: [N, C * KH * KW, OH * OW], as `columns` returns them.
        shape: N, C, H, W of the image.
        kernel: As for `columns`.
        stride: As for `columns`.
        padding: As for `columns`; what falls into it is dropped.

    Returns:
        [N, C, H, W].

    Raises:
        KernelError: The window does not fit the image.
        AutodiffError: The shape of the columns does not match that of the image.
    """
    g = _geometry(shape, kernel, stride, padding)
    (height, width), (down, right), (top, left, _, _) = g.out, g.stride, g.padding
    expected = (g.images, g.depth, height * width)
    if columns.shape != expected:
        what = "the columns do not match the image"
        raise AutodiffError(what, where=f"image {list(shape)}", expected=list(expected), got=list(columns.shape))
    parts = columns.reshape(g.images, g.channels, *g.kernel, height, width)
    padded = np.zeros((g.images, g.channels, *g.padded), columns.dtype)
    # a loop over kernel positions, not over pixels: for one kernel position, the pixels of all windows are distinct
    for i, j in np.ndindex(*g.kernel):
        rows, cols = slice(i, i + down * (height - 1) + 1, down), slice(j, j + right * (width - 1) + 1, right)
        padded[:, :, rows, cols] += parts[:, :, i, j]
    return padded[:, :, top : top + g.height, left : left + g.width]


def _geometry(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair) -> Geometry:
    sizes = (kernel, kernel) if isinstance(kernel, int | np.integer) else tuple(kernel)
    return geometry(shape, (1, shape[1] if len(shape) == 4 else 1, *sizes), stride, padding)
