"""A convolution in NumPy, with which checks of several projects compare."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def convolve(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, stride: int = 1, padding: int = 0, dilation: int = 1
) -> np.ndarray:
    """Convolve images [N, C, H, W] with a weight [F, C, KH, KW] and a bias [F], in their dtype: [N, F, OH, OW]."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    size = tuple((n - 1) * dilation + 1 for n in weight.shape[2:])
    windows = sliding_window_view(x, size, (2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]
    products = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3)))  # N, OH, OW, F
    return np.moveaxis(products + bias, 3, 1)
