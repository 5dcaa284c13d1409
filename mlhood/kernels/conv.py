"""The ladder of the convolution: y[N, F, OH, OW] from x[N, C, H, W] and w[F, C / groups, KH, KW] in float32.

Every rung has the signature of `direct`, and the results agree up to rounding. The epilogue is the same everywhere:
y = clip(convolution + bias + residual).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import gemm, parallel
from mlhood.kernels.geometry import Geometry, Pair, geometry

Conv2d = Callable[..., np.ndarray]
Clip = tuple[float, float]

RELU: Clip = (0.0, math.inf)


def im2col(g: Geometry, image: np.ndarray) -> np.ndarray:
    """Return the windows of one image, float32 [C, H, W], as [groups, C / groups * KH * KW, OH * OW].

    With them a convolution becomes a matrix product (Chellapilla, Puri and Simard, High Performance Convolutional
    Neural Networks for Document Processing, 2006). A column holds a window in the order (channel, row, column); the
    columns are in the order of the result's pixels. The matrix is KH * KW / (stride * stride) times the size of the
    image, except for a pointwise convolution, which needs no copy.
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


def _with_epilogue(convolve: Callable[[Geometry, np.ndarray, np.ndarray, int], np.ndarray]) -> Conv2d:
    """Return a rung of the ladder from a convolution without checks and epilogue."""

    def rung(
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        stride: Pair = 1,
        padding: Pair = 0,
        *,
        dilation: Pair = 1,
        groups: int = 1,
        residual: np.ndarray | None = None,
        clip: Clip | None = None,
        threads: int | None = None,
    ) -> np.ndarray:
        g = check_convolution(x, w, bias, stride, padding, dilation, groups, residual)
        return _epilogue(convolve(g, x, w, parallel.resolve_threads(threads)), bias, residual, clip)

    return functools.update_wrapper(rung, convolve, ("__module__", "__name__", "__qualname__", "__doc__"))


def _epilogue(y: np.ndarray, bias: np.ndarray | None, residual: np.ndarray | None, clip: Clip | None) -> np.ndarray:
    if bias is not None:
        y += bias[:, None, None]
    if residual is not None:
        y += residual
    if clip is not None:
        np.clip(y, np.float32(clip[0]), np.float32(clip[1]), out=y)
    return y


@_with_epilogue
def naive(g: Geometry, x: np.ndarray, w: np.ndarray, threads: int) -> np.ndarray:
    """Convolve by the definition, in seven nested loops. Arguments as for `direct`."""
    from mlhood.kernels import loops

    top, left, bottom, right = g.padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    y, w = np.empty(g.out_shape, np.float32), np.ascontiguousarray(w)

    def convolve(first: int, stop: int) -> None:
        loops.conv_naive(padded, w, y, first, stop, g.stride, g.dilation, g.groups)

    parallel.parallel_for(convolve, g.filters, threads)
    return y


@_with_epilogue
def im2col_gemm(g: Geometry, x: np.ndarray, w: np.ndarray, threads: int) -> np.ndarray:
    """Convolve by im2col and our own matrix product, without a library. Arguments as for `direct`."""
    return _by_matrix_product(g, x, w, gemm.vectorised, threads)


@_with_epilogue
def im2col_blas(g: Geometry, x: np.ndarray, w: np.ndarray, threads: int) -> np.ndarray:
    """Convolve by im2col and NumPy's BLAS. Arguments as for `direct`."""
    return _by_matrix_product(g, x, w, gemm.blas, threads)


def _by_matrix_product(g: Geometry, x: np.ndarray, w: np.ndarray, product: gemm.Gemm, threads: int) -> np.ndarray:
    """Multiply the weights [F, k] of each group with the windows [k, OH * OW] of each image."""
    high, wide = g.out
    y = np.empty((g.images, g.groups, g.filters // g.groups, high * wide), np.float32)
    filters = w.reshape(g.groups, g.filters // g.groups, g.depth)
    for image in range(g.images):
        for group, columns in enumerate(im2col(g, x[image])):
            y[image, group] = product(filters[group], columns, threads=threads)
    return y.reshape(g.out_shape)


def direct(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    *,
    dilation: Pair = 1,
    groups: int = 1,
    residual: np.ndarray | None = None,
    clip: Clip | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Convolve with the generated microkernel, without im2col.

    Each call packs the weights; `mlhood.kernels.direct.prepare` packs them once.

    Args:
        x: float32 [N, C, H, W].
        w: float32 [F, C / groups, KH, KW].
        bias: float32 [F], or None.
        stride: One number, or (vertical, horizontal).
        padding: One number, (vertical, horizontal) for both sides, or (top, left, bottom, right).
        dilation: One number, or (vertical, horizontal).
        groups: Number of groups of channels and filters; C for a depthwise convolution.
        residual: float32 of the result's shape, added to it; or None.
        clip: Bounds that the result is clamped to: `RELU`, (0, 6); None for none.
        threads: Number of threads; `parallel.threads()` by default.

    Returns:
        float32 [N, F, OH, OW].

    Raises:
        KernelError: If dtypes, shapes or parameters are inconsistent.
    """
    from mlhood.kernels.direct import Direct

    g = check_convolution(x, w, bias, stride, padding, dilation, groups, residual)
    if not (g.images and g.filters and g.depth):
        return _epilogue(np.zeros(g.out_shape, np.float32), bias, residual, clip)
    bias, residual = (None if array is None else np.ascontiguousarray(array) for array in (bias, residual))
    count = parallel.resolve_threads(threads)
    steps = () if clip is None else (("Clip", clip, (0,)),)
    prepared = Direct(g, np.ascontiguousarray(w), bias, threads=count, epilogue=steps)
    return prepared(np.ascontiguousarray(x), residual, threads=count)


def check_convolution(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    residual: np.ndarray | None = None,
) -> Geometry:
    """Return the geometry of a convolution after checking its operands.

    Raises:
        KernelError: If dtypes, shapes or parameters are inconsistent.
    """
    for name, array in (("x", x), ("w", w), ("bias", bias), ("residual", residual)):
        if array is not None and not (isinstance(array, np.ndarray) and array.dtype == np.float32):
            got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            todo = f"convert it: np.asarray({name}, np.float32)"
            raise KernelError(f"{name} is not a NumPy array of float32", got=got, todo=todo)
    g = geometry(x.shape, w.shape, stride, padding, dilation, groups)
    for name, array, shape in (("bias", bias, (g.filters,)), ("residual", residual, g.out_shape)):
        if array is not None and array.shape != shape:
            raise KernelError(f"{name} has the wrong shape", expected=list(shape), got=list(array.shape))
    return g


CONV2D: dict[str, Conv2d] = {"naive": naive, "im2col_gemm": im2col_gemm, "im2col_blas": im2col_blas, "direct": direct}
"""The ladder of convolutions by the name of the rung: `(x, w, bias, stride, padding) -> y`, all of shape NCHW."""
