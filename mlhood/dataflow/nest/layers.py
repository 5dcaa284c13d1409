"""The nests of the course: the matrix product, and the convolution with its seven loops."""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.dataflow.nest.nest import Nest
from mlhood.dataflow.nest.parse import nest
from mlhood.kernels.geometry import Pair, geometry


def gemm(m: int, n: int, k: int) -> Nest:
    """Return the matrix product C[M, N] += A[M, K] * B[K, N], as the loops i, j, k.

    Raises:
        NestError: If an extent is not a positive integer.
    """
    return nest("C[i, j] += A[i, k] * B[k, j]", i=m, j=n, k=k)


def conv2d(x: Sequence[int], w: Sequence[int], stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1) -> Nest:
    """Return the convolution of x with w as the loops n, f, oh, ow, c, kh, kw; y[N, F, OH, OW] is its output.

    The nest's x has its padding around it: `mlhood.kernels.conv.pad` puts it there.

    Args:
        x: Shape [N, C, H, W], without padding.
        w: Shape [F, C, KH, KW].
        stride: One number, or down and right.
        padding: One number, (down, right) for both sides, or (top, left, bottom, right).
        dilation: One number, or down and right.

    Raises:
        KernelError: If there is no such convolution.
    """
    g = geometry(x, w, stride, padding, dilation)
    (down, right), (reach, across) = g.stride, g.dilation
    text = f"y[n, f, oh, ow] += x[n, c, {down}*oh + {reach}*kh, {right}*ow + {across}*kw] * w[f, c, kh, kw]"
    shapes = {"x": (g.images, g.channels, *g.padded)}
    return nest(
        text, shapes,
        n=g.images, f=g.filters, oh=g.out[0], ow=g.out[1], c=g.channels, kh=g.kernel[0], kw=g.kernel[1],
    )  # fmt: skip
