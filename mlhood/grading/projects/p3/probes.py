"""Probes that run in the student's process, on the student's functions; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.grading.projects.p3.reference import columns
from mlhood.measure.touches import uncompiled


def after_call(function: Callable, arrays: list[np.ndarray], rest: list[int]) -> list[np.ndarray]:
    """Return the contents of arrays after a function was called with them."""
    function(*arrays, *rest)
    return arrays


def with_reference_columns(
    function: Callable, arrays: list[np.ndarray], stride: int, padding: int, factor: float = 1.0
) -> dict[str, Any]:
    """Call a convolution with the notebook's `im2col` replaced by the reference's, times a factor.

    Returns:
        Its `result`, and the number of `images` passed to `im2col`.
    """
    images = []

    def im2col(x: np.ndarray, kernel: tuple[int, int], stride: int, padding: int) -> np.ndarray:
        images.append(x)
        return columns(x, kernel, stride, padding) * np.float32(factor)

    result = uncompiled(function, np, im2col=im2col)(*arrays, stride, padding)
    return {"result": result, "images": len(images)}


def repeated(
    function: Callable, kept: Any, shifts: list[int], shares: list[float], channels: list[int], steps: list[int]
) -> np.ndarray:
    """Return the weighted sum of convolutions of an image shifted circularly by so many elements, some channels of it.

    Args:
        kept: x, w and bias, kept in an earlier call.
        shifts: One for each call of `function`, which thus never sees the same image twice.
        shares: The weights.
        channels: Of the result.
        steps: Stride and padding.
    """
    x, w, bias = kept.arrays
    total = np.float32(0)
    for shift, share in zip(shifts, shares, strict=True):
        result = np.asarray(function(np.roll(x, shift), w, bias, *steps))
        if result.shape[:2] != (len(x), len(w)):
            return result
        total = total + np.float32(share) * result[:, channels]
    return np.asarray(total)


def with_reference_pack(function: Callable, a: np.ndarray, b: np.ndarray, factor: float = 1.0) -> Any:
    """Call a matrix product with the notebook's `pack` replaced by the reference's, times a factor."""
    return uncompiled(function, np, pack=lambda b, width: packed(b, width) * np.float32(factor))(a, b)


def packed(b: np.ndarray, width: int) -> np.ndarray:
    """Return the columns of b in panels [ceil(N / width), K, width], the last one padded with zeros."""
    depth, columns = b.shape
    padded = np.zeros((depth, -(-columns // width) * width), b.dtype)
    padded[:, :columns] = b
    return np.ascontiguousarray(padded.reshape(depth, -1, width).transpose(1, 0, 2))
