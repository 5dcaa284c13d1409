"""im2col: each window of an image becomes a column of a matrix, so that a convolution becomes a matrix product.

(Chellapilla, Puri and Simard, High Performance Convolutional Neural Networks for Document Processing, 2006.)
"""

from __future__ import annotations

import numpy as np

from mlhood.kernels.geometry import Geometry


def im2col(g: Geometry, image: np.ndarray) -> np.ndarray:
    """Return the windows of one image, float32 [C, H, W], as [groups, C / groups * KH * KW, OH * OW].

    A column holds a window in the order (channel, row, column); the columns are in the order of the result's pixels.
    The matrix is KH * KW / (stride * stride) times the size of the image, except for a pointwise convolution, which
    needs no copy.
    """
    high, wide = g.out
    if g.pointwise:
        return np.ascontiguousarray(image).reshape(g.groups, g.depth, high * wide)
    top, left, bottom, right = g.padding
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right))) if any(g.padding) else image
    matrix = np.empty((g.channels, *g.kernel, high, wide), np.float32)
    for i in range(g.kernel[0]):
        for j in range(g.kernel[1]):
            row, column = i * g.dilation[0], j * g.dilation[1]
            rows = slice(row, row + g.stride[0] * (high - 1) + 1, g.stride[0])
            columns = slice(column, column + g.stride[1] * (wide - 1) + 1, g.stride[1])
            matrix[:, i, j] = padded[:, rows, columns]
    return matrix.reshape(g.groups, g.depth, high * wide)
