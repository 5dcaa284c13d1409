"""What convolution and pooling share: the sizes of sliding windows, padding, and the windows themselves.

Axes of a tensor are [N, C, spatial...]; pads are begins then ends, as ONNX has them: (top, left, bottom, right).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.compiler.hir.lengths import Dim, add_dims, divide_dim, maximum, product, subtract_dims
from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import Shape, TensorType
from mlhood.compiler.operators.onnx_node import OnnxNode

_AUTO_PADS = ("", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """A sliding window: one number per spatial axis, and two pads.

    Args:
        kernel: Sizes of the window.
        strides: Steps between windows.
        pads: Numbers of elements added before each axis, then after each.
        dilations: Distances between neighbouring elements of a window.
        ceil: Whether a last window that extends past the end counts.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[Any, ...]
    dilations: tuple[int, ...]
    ceil: bool = False

    @property
    def spans(self) -> tuple[int, ...]:
        """How many elements the window spans, per axis."""
        return tuple((size - 1) * dilation + 1 for size, dilation in zip(self.kernel, self.dilations, strict=True))

    @property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The pads before and after each axis, as pairs."""
        axes = len(self.kernel)
        return tuple(zip(self.pads[:axes], self.pads[axes:], strict=True))

    def check(self, x: TensorType) -> None:
        """Raise CompilerError unless the window fits the tensor."""
        axes = x.rank - 2
        require(axes >= 1, "the input needs a batch, a channel and at least one spatial axis", got=list(x.shape))
        lengths = len(self.kernel), len(self.strides), len(self.dilations), len(self.pads)
        what = f"{axes} spatial axes need as many kernel sizes, strides and dilations, and twice as many pads"
        require(lengths == (axes, axes, axes, 2 * axes), what, got=", ".join(map(str, lengths)))
        positive = (*self.kernel, *self.strides, *self.dilations)
        require(min(positive) >= 1, "kernel sizes, strides and dilations must be positive", got=positive)
        positive = all(isinstance(pad, str) or pad >= 0 for pad in self.pads)
        require(positive, "pads cannot be negative", got=self.pads)

    def output(self, spatial: Shape) -> Shape:
        """Return how many windows there are, per axis.

        Raises:
            CompilerError: The window is larger than the padded input.
        """
        axes = zip(spatial, self.spans, self.strides, self.ends, strict=True)
        return tuple(self._count(*axis) for axis in axes)

    def _count(self, size: Dim, span: int, stride: int, pads: tuple[int, int]) -> Dim:
        padded, free = add_dims(size, *pads), add_dims(size, *pads, -span)
        # with `ceil`, the first window may extend past the end, too
        fits = isinstance(free, str) or free >= 0 or (self.ceil and free > -stride)
        require(fits, "the window is larger than the padded input", expected=f">= {span}", got=padded)
        count = add_dims(divide_dim(free, stride, up=self.ceil), 1)
        # a window that would start after the input, in the padding at the end, is dropped
        late = self.ceil and isinstance(count, int) and isinstance(size, int) and (count - 1) * stride >= size + pads[0]
        return add_dims(count, -1) if late else count

    def workspace(self, shape: Shape) -> int:
        """Return the number of elements of the padded tensor or of a copy of all its windows, whichever is larger.

        Args:
            shape: [N, C, spatial...], without dynamic axes.
        """
        counts = [int(count) for count in self.output(shape[2:])]
        padded = [int(n) + sum(pads) for n, pads in zip(shape[2:], self.ends, strict=True)]
        reach = [(n - 1) * s + span for n, s, span in zip(counts, self.strides, self.spans, strict=True)]
        images = int(shape[0]) * int(shape[1])
        copied = math.prod(counts) * math.prod(self.kernel)
        return images * max(math.prod(map(max, padded, reach)), copied)

    def view(self, x: np.ndarray, fill: float, *, inner: float | None = None) -> np.ndarray:
        """Return all windows of x, padded.

        Args:
            x: [N, C, spatial...].
            fill: The value of the padding.
            inner: The value of the declared pads, if it differs from that of the elements which `ceil` adds after them.

        Returns:
            A view [N, C, windows..., kernel...].
        """
        counts = self.output(x.shape[2:])
        view = sliding_window_view(self.padded(x, fill, inner=inner), self.spans, tuple(range(2, x.ndim)))
        steps = [slice(None, (int(n) - 1) * s + 1, s) for n, s in zip(counts, self.strides, strict=True)]
        inside = [slice(None, None, dilation) for dilation in self.dilations]
        return view[(slice(None), slice(None), *steps, *inside)]

    def padded(self, x: np.ndarray, fill: float, *, inner: float | None = None) -> np.ndarray:
        """Return x padded by all elements that a window covers; arguments as for `view`."""
        around = _pad(x, self.ends, fill if inner is None else inner)
        axes = zip(self.output(x.shape[2:]), self.strides, self.spans, around.shape[2:], strict=True)
        after = [(0, max(0, (int(n) - 1) * stride + span - length)) for n, stride, span, length in axes]
        return _pad(around, after, fill)

    def taps(self, padded: np.ndarray, axis: int, count: int) -> list[np.ndarray]:
        """Return for each position in the window, along one spatial axis, the elements that all windows have there.

        Args:
            padded: The result of `padded`, possibly with earlier axes reduced.
            axis: A spatial axis, counted from 0.
            count: How many windows there are along it.

        Returns:
            Views with `count` elements along the axis.
        """
        stride, dilation = self.strides[axis], self.dilations[axis]
        before = (slice(None),) * (axis + 2)
        starts = [k * dilation for k in range(self.kernel[axis])]
        return [padded[(*before, slice(start, start + (count - 1) * stride + 1, stride))] for start in starts]


def _pad(x: np.ndarray, ends: Iterable[tuple[int, int]], fill: float) -> np.ndarray:
    """Return x padded before and after its spatial axes; x itself, not a copy, without pads."""
    widths = [(0, 0), (0, 0), *ends]
    return np.pad(x, widths, constant_values=fill) if any(map(any, widths)) else x


def read_window(source: OnnxNode, x: TensorType, kernel: tuple[int, ...]) -> Window:
    """Return the window of an ONNX node, with `auto_pad` resolved to pads."""
    ones = (1,) * len(kernel)
    strides, dilations = source.attribute("strides", ones), source.attribute("dilations", ones)
    pads = source.attribute("pads", (0, 0) * len(kernel))
    ceil = bool(source.attribute("ceil_mode", 0))
    auto = source.attribute("auto_pad", "NOTSET")
    axes = x.rank - 2
    lengths = len(kernel), len(strides), len(dilations)
    same = "kernel_shape, strides and dilations need a number for each spatial axis"
    require(lengths == (axes,) * 3, same, expected=f"{axes} each", got=", ".join(map(str, lengths)))
    require(auto in _AUTO_PADS, "unknown auto_pad", expected=", ".join(_AUTO_PADS[1:]), got=auto)
    positive = (*kernel, *strides, *dilations)
    require(min(positive, default=1) >= 1, "kernel sizes, strides and dilations must be positive", got=positive)
    if auto in ("", "NOTSET"):
        return Window(kernel, strides, pads, dilations, ceil)
    window = Window(kernel, strides, (0, 0) * len(kernel), dilations, ceil)
    if auto == "VALID":
        return window
    axes = zip(x.shape[2:], window.spans, strides, strict=True)
    totals = [_same_padding(*axis) for axis in axes]
    small = tuple(divide_dim(total, 2) for total in totals)
    large = tuple(map(subtract_dims, totals, small))
    pads = small + large if auto == "SAME_UPPER" else large + small
    return Window(kernel, strides, pads, dilations, ceil)


def _same_padding(size: Dim, span: int, stride: int) -> Any:
    last = product((add_dims(divide_dim(size, stride, up=True), -1), stride))
    return span - 1 if stride == 1 else maximum(add_dims(last, span, product((-1, size))), 0)
