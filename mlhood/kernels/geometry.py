"""The shape of a convolution: what goes in, what comes out, and what cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.errors import KernelError

Pair = int | Sequence[int]


@dataclass(frozen=True)
class Geometry:
    """A convolution's sizes.

    Args:
        images: N, and so on: x is [N, C, H, W], w is [F, C / groups, KH, KW].
        channels: C.
        height: H.
        width: W.
        filters: F.
        kernel: KH and KW.
        stride: Down and to the right.
        padding: Zeros at the top, left, bottom and right, the order of ONNX.
        dilation: Down and to the right.
        groups: Parts that the channels and filters fall into, each convolved on its own.
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
        """Height and width with the zeros around."""
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
        """Numbers in one window: C / groups * KH * KW."""
        return self.channels // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def out_shape(self) -> tuple[int, int, int, int]:
        """The result's shape: N, F, OH, OW."""
        return self.images, self.filters, *self.out

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate, padding included."""
        return 2 * self.images * self.filters * self.out[0] * self.out[1] * self.depth

    @property
    def pointwise(self) -> bool:
        """Whether a window is one pixel and windows are neighbours: a plain matrix product."""
        return self.kernel == (1, 1) and self.stride == (1, 1) and not any(self.padding)

    @property
    def rows(self) -> tuple[int, int]:
        """The result's rows and their length, as kernels walk them; a plain matrix product has one long row."""
        return (1, self.out[0] * self.out[1]) if self.pointwise else self.out

    def distances(self, piece: int = 1) -> np.ndarray:
        """Return how far from a window's first element its number for each k = (channel, row, column) lies.

        Args:
            piece: How many of a pixel's channels are neighbours in the padded input: 1 for [N, C, H, W].

        Returns:
            int64 [depth], in elements.
        """
        high, wide = self.padded
        channel, row, column = np.ogrid[: self.channels // self.groups, : self.kernel[0], : self.kernel[1]]
        pixel = (channel // piece * high + row * self.dilation[0]) * wide + column * self.dilation[1]
        return (pixel * piece + channel % piece).ravel().astype(np.int64)


def geometry(
    x: Sequence[int], w: Sequence[int], stride: Pair = 1, padding: Pair = 0, dilation: Pair = 1, groups: int = 1
) -> Geometry:
    """Return the sizes of a convolution of the shapes x and w.

    Args:
        x: [N, C, H, W].
        w: [F, C / groups, KH, KW].
        stride: One number, or down and right.
        padding: One number, (down, right) for both sides, or (top, left, bottom, right).
        dilation: One number, or down and right.
        groups: Divides C and F.

    Raises:
        KernelError: If there is no such convolution.
    """
    if len(x) != 4 or len(w) != 4:
        raise KernelError(
            "a convolution takes four-dimensional arrays",
            expected="x[N, C, H, W], w[F, C / groups, KH, KW]",
            got=f"x{list(x)}, w{list(w)}",
        )
    images, channels, height, width = x
    found = Geometry(
        images, channels, height, width, w[0], (w[2], w[3]),
        _pair(stride, "stride", 1), _padding(padding), _pair(dilation, "dilation", 1), groups,
    )  # fmt: skip
    _check(found, w[1])
    return found


def _check(found: Geometry, per_group: int) -> None:
    groups = found.groups
    if groups < 1 or found.channels % groups or found.filters % groups or found.channels // groups != per_group:
        raise KernelError(
            "channels, filters and groups do not fit together",
            expected="C = groups * w.shape[1], and groups divides F",
            got=f"C = {found.channels}, F = {found.filters}, w.shape[1] = {per_group}, groups = {groups}",
        )
    if min(found.kernel) < 1 or min(found.out) < 1:
        raise KernelError(
            "the window does not fit into the input",
            expected="at most the padded input's height and width",
            got=f"kernel {found.kernel}, dilation {found.dilation}, padded input {found.padded}",
            todo="pad more, or take a smaller kernel",
        )


def _pair(value: Pair, name: str, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int | np.integer) else tuple(value)
    if len(pair) != 2 or min(pair) < least:
        raise KernelError(
            f"this {name} has no meaning", expected=f"one or two integers from {least} on", got=repr(value)
        )
    return int(pair[0]), int(pair[1])


def _padding(value: Pair) -> tuple[int, int, int, int]:
    if isinstance(value, int | np.integer):
        value = (value, value)
    four = tuple(int(one) for one in (value if len(value) == 4 else (*value, *value)))
    if len(four) != 4 or min(four) < 0:
        raise KernelError(
            "this padding has no meaning",
            expected="a number, (down, right) or (top, left, bottom, right), none negative",
            got=repr(value),
        )
    return four
