"""Questions that need the student's functions, asked in their process; the answers are claims, which checks compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.grading.projects.p3.reference import columns
from mlhood.measure.touches import as_written, written


def after_call(function: Callable, arrays: list[np.ndarray], rest: list[int]) -> list[np.ndarray]:
    """What arrays hold after a function was called with them."""
    function(*arrays, *rest)
    return arrays


def with_right_columns(function: Callable, arrays: list[np.ndarray], stride: int, padding: int) -> dict[str, Any]:
    """Call a convolution that finds a right `im2col` where the notebook has its own.

    Returns:
        Its `result`, and the number of `images` that `im2col` was given; None for a function that takes its names from
        elsewhere, such as a part of another one.
    """
    images = []

    def im2col(x: np.ndarray, kernel: tuple[int, int], stride: int, padding: int) -> np.ndarray:
        images.append(x)
        return columns(x, kernel, stride, padding)

    result = as_written(function, np, im2col=im2col)(*arrays, stride, padding)
    return {"result": result, "images": None if written(function) is None else len(images)}


def repeated(
    function: Callable, x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int, shares: np.ndarray
) -> np.ndarray:
    """The sum of convolutions of x, its channels turned by 0, 1, ..., each times its share.

    So work that is short beside the way there and back is done several times, on an image that is new each time.
    """
    total = np.float32(0)
    for number, share in enumerate(shares):
        total = total + share * function(np.roll(x, number, axis=1), w, bias, stride, padding)
    return np.asarray(total)


def packs(function: Callable, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a matrix product calls `pack`."""
    calls = []

    def pack(b: np.ndarray, width: int) -> np.ndarray:
        calls.append(width)
        return packed(b, width)

    as_written(function, np, pack=pack)(a, b)
    return bool(calls)


def with_right_pack(function: Callable, a: np.ndarray, b: np.ndarray) -> Any:
    """What a function makes of a and b that finds a right `pack` where the notebook has its own."""
    return as_written(function, np, pack=packed)(a, b)


def packed(b: np.ndarray, width: int) -> np.ndarray:
    """Columns of b in panels [ceil(N / width), K, width], the last one filled up with zeros."""
    depth, columns = b.shape
    wide = np.zeros((depth, -(-columns // width) * width), b.dtype)
    wide[:, :columns] = b
    return np.ascontiguousarray(wide.reshape(depth, -1, width).transpose(1, 0, 2))
