"""The geometry of a convolution: shapes of its operands and of its result, checked, and their layouts in memory.

Activations are plain, [N, C, H, W], or blocked, [N, C / lanes, H, W, lanes]: as many channels as a register has lanes
are adjacent, so a kernel with output channels in its lanes stores full registers without transposing. Between the
layers of a compiled model activations stay blocked. (Georganas et al., Anatomy of High-Performance Deep Learning
Convolutions on SIMD Architectures, SC 2018.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlhood.errors import KernelError

Pair = int | Sequence[int]
Layout = Literal["plain", "blocked"]


@dataclass(frozen=True)
class Geometry:
    """The sizes of a convolution of x[N, C, H, W] and w[F, C / groups, KH, KW].

    Args:
        images: N.
        channels: C.
        height: H.
        width: W.
        filters: F.
        kernel: KH and KW.
        stride: Vertical and horizontal.
        padding: Zeros at the top, left, bottom and right, the order of ONNX.
        dilation: Vertical and horizontal.
        groups: Number of groups of channels and filters, each convolved separately.
    """

    images: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with padding."""
        top, left, bottom, right = self.padding
        return self.height + top + bottom, self.width + left + right

    @property
    def out(self) -> tuple[int, int]:
        """OH and OW: 1 + floor((padded - dilation * (kernel - 1) - 1) / stride)."""
        sizes = zip(self.padded, self.kernel, self.stride, self.dilation, strict=True)
        high, wide = ((size - d * (k - 1) - 1) // s + 1 for size, k, s, d in sizes)
        return high, wide

    @property
    def depth(self) -> int:
        """Elements of a window: C / groups * KH * KW."""
        return self.channels // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """The result's shape: N, F, OH, OW."""
        return self.images, self.filters, *self.out

    @property
    def flops(self) -> int:
        """Floating-point operations: two per multiply-accumulate, padding included."""
        return 2 * self.images * self.filters * self.out[0] * self.out[1] * self.depth

    @property
    def pointwise(self) -> bool:
        """Whether it is a plain matrix product: a 1x1 kernel, stride 1, no padding."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and not any(self.padding)

    @property
    def rows(self) -> tuple[int, int]:
        """Number and length of the result's rows as kernels traverse them: a single row for a pointwise convolution."""
        return (1, self.out[0] * self.out[1]) if self.pointwise else self.out

    def offsets(self, channel_block: int = 1) -> np.ndarray:
        """Return the offset of each k = (channel, row, column) from a window's first element.

        Args:
            channel_block: Adjacent channels of a pixel in the padded input: 1 for [N, C, H, W].

        Returns:
            int64 [depth], in elements.
        """
        high, wide = self.padded
        channel, row, column = np.ogrid[: self.channels // self.groups, : self.kernel[0], : self.kernel[1]]
        pixel = (channel // channel_block * high + row * self.dilation[0]) * wide + column * self.dilation[1]
        return (pixel * channel_block + channel % channel_block).ravel().astype(np.int64)


def geometry(
    x: Sequence[int], w: Sequence[int], stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1
) -> Geometry:
    """Return the geometry of a convolution of the shapes x and w.

    Args:
        x: [N, C, H, W].
        w: [F, C / groups, KH, KW].
        stride, padding, dilation, groups: As for `mlhood.kernels.conv.direct`.

    Raises:
        KernelError: If shapes or parameters are inconsistent.
    """
    if len(x) != 4 or len(w) != 4:
        raise KernelError(
            "a convolution takes four-dimensional arrays",
            expected="x[N, C, H, W], w[F, C / groups, KH, KW]",
            got=f"x{list(x)}, w{list(w)}",
        )
    images, channels, height, width = x
    steps = _pair(stride, "stride", 1), _padding(padding), _pair(dilation, "dilation", 1)
    g = Geometry(images, channels, height, width, w[0], (w[2], w[3]), *steps, groups)
    if groups < 1 or channels % groups or g.filters % groups or channels // groups != w[1]:
        raise KernelError(
            "channels, filters and groups are inconsistent",
            expected="C = groups * w.shape[1], and groups divides F",
            got=f"C = {channels}, F = {g.filters}, w.shape[1] = {w[1]}, groups = {groups}",
        )
    if min(g.kernel) < 1 or min(g.out) < 1:
        raise KernelError(
            "the window does not fit into the input",
            expected="at most the padded input's height and width",
            got=f"kernel {g.kernel}, dilation {g.dilation}, padded input {g.padded}",
            todo="pad more, or use a smaller kernel",
        )
    return g


def _pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int | np.integer) else tuple(value)
    if len(pair) != 2 or min(pair) < least:
        raise KernelError(f"invalid {name}", expected=f"one or two integers >= {least}", got=repr(value))
    return int(pair[0]), int(pair[1])


def _padding(value: Pair) -> tuple[int, int, int, int]:
    if isinstance(value, int | np.integer):
        value = (value, value)
    sides = tuple(int(side) for side in (value if len(value) == 4 else (*value, *value)))
    if len(sides) != 4 or min(sides) < 0:
        raise KernelError(
            "invalid padding",
            expected="a number, (vertical, horizontal) or (top, left, bottom, right), none negative",
            got=repr(value),
        )
    return sides


def stored_shape(shape: Sequence[int], layout: Layout, lanes: int) -> tuple[int, ...]:
    """Return the shape in memory of activations [N, C, H, W]: in the blocked layout C is rounded up to full blocks."""
    images, channels, high, wide = shape
    if layout == "plain":
        return images, channels, high, wide
    return images, -(-channels // lanes), high, wide, lanes
