"""ResNet's operators in NumPy: vectorised over whole arrays, matrix products by BLAS, no loop over pixels.

They are the fair baseline for `with_jax`, which has the same functions. Arrays are float32, images NCHW.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.kernels.geometry import Pair, geometry

Corners = tuple[int, int, int, int]


def conv2d(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, stride: Pair = 1, padding: Pair = 0
) -> np.ndarray:
    """Convolve by im2col: all windows become columns of a matrix, then one matrix product per image.

    (Chellapilla, Puri and Simard, High Performance Convolutional Neural Networks for Document Processing, 2006.)

    Args:
        x: float32 [N, C, H, W].
        w: float32 [F, C, KH, KW].
        bias: float32 [F], or None.
        stride: One number, or down and right.
        padding: Zeros on each side: one number, (down, right), or (top, left, bottom, right).

    Returns:
        float32 [N, F, OH, OW].

    Raises:
        KernelError: The shapes do not match.
    """
    g = geometry(x.shape, w.shape, stride, padding)
    down, right = g.stride
    windows = sliding_window_view(_pad(x, g.padding, 0), g.kernel, (2, 3))[:, :, ::down, ::right]
    # in this order the pixels of an output row stay contiguous when the windows are copied
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(g.images, g.depth, -1)
    y = w.reshape(g.filters, g.depth) @ columns
    if bias is not None:
        y += bias[:, None]
    return y.reshape(g.out_shape)


def batch_norm(
    x: np.ndarray, mean: np.ndarray, var: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-5
) -> np.ndarray:
    """Normalise each channel by running statistics: (x - mean) / sqrt(var + eps) * weight + bias.

    (Ioffe and Szegedy, Batch Normalization, 2015, algorithm 2.) Folded into one scale and one offset per channel, it
    takes two passes over the image instead of four.

    Args:
        x: float32 [N, C, H, W].
        mean: float32 [C], as are var, weight and bias.
        var: Variance.
        weight: Scale after the normalisation.
        bias: Offset after the normalisation.
        eps: Keeps the square root above zero.

    Returns:
        float32 [N, C, H, W].
    """
    scale = weight / np.sqrt(var + np.float32(eps))
    y = x * scale[:, None, None]
    y += (bias - mean * scale)[:, None, None]
    return y


def relu(x: np.ndarray) -> np.ndarray:
    """Return max(x, 0) of each element, for an array of any shape."""
    return np.maximum(x, 0)


def max_pool(x: np.ndarray, kernel: int = 3, stride: int = 2, padding: int = 1) -> np.ndarray:
    """Return the maximum of each window; padding is minus infinity, so it is never the maximum.

    The maximum is separable, first along the rows, then along the columns: 2 kernel comparisons instead of kernel ** 2.

    Args:
        x: float32 [N, C, H, W].
        kernel: Height and width of a window.
        stride: Distance between windows.
        padding: Padding on each side.

    Returns:
        float32 [N, C, OH, OW].

    Raises:
        KernelError: The window does not fit into the image.
    """
    g = geometry(x.shape, (x.shape[1], x.shape[1], kernel, kernel), stride, padding)
    rows = _sliding_max(_pad(x, g.padding, -np.inf), 3, kernel, stride, g.out[1])
    return _sliding_max(rows, 2, kernel, stride, g.out[0])


def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return x + y, for two arrays of the same shape."""
    return x + y


def global_average_pool(x: np.ndarray) -> np.ndarray:
    """Return the mean of each channel: float32 [N, C, H, W] -> [N, C]."""
    return x.mean((2, 3))


def dense(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return x @ w.T + bias, float32 [N, outputs]: x [N, inputs], w [outputs, inputs] as in torch, bias [outputs]."""
    return x @ w.T + bias


def softmax(x: np.ndarray) -> np.ndarray:
    """Return exp(x) / sum(exp(x)) along the last axis, for any number of axes.

    The maximum is subtracted first: exp overflows float32 from 89 on.
    """
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _pad(x: np.ndarray, padding: Corners, value: float) -> np.ndarray:
    """Pad an image with a constant; `np.pad` does the same with more overhead."""
    if not any(padding):
        return x
    top, left, bottom, right = padding
    images, channels, height, width = x.shape
    padded = np.full((images, channels, top + height + bottom, left + width + right), value, x.dtype)
    padded[:, :, top : top + height, left : left + width] = x
    return padded


def _sliding_max(x: np.ndarray, axis: int, kernel: int, stride: int, count: int) -> np.ndarray:
    """Return the maximum of `kernel` neighbours along an axis, computed slice by slice over all windows at once."""
    leading = (slice(None),) * axis
    slices = [x[*leading, slice(i, i + stride * (count - 1) + 1, stride)] for i in range(kernel)]
    result = slices[0].copy()
    for other in slices[1:]:
        np.maximum(result, other, out=result)
    return result
