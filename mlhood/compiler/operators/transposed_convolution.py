"""Transposed convolution: each element of the input adds a scaled copy of the kernel to the output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.lengths import add_dims, product
from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Dim, Shape, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.onnx_node import OnnxNode


@dataclass(frozen=True)
class ConvTranspose(Operator):
    """y[n, f, i stride + k dilation - pad] += x[n, c, i] w[c, f, k], and the bias: the adjoint of a convolution.

    Inputs: x [N, C, spatial...], w [C, F / group, kernel...], bias [F] or none. Output: y [N, F, (spatial - 1) stride +
    (kernel - 1) dilation + 1 + output_pads - pads...].

    Attributes:
        strides: How far the kernel's copies lie apart.
        pads: How much is cut off before each axis, then behind each.
        dilations: Distance of the kernel's elements.
        output_pads: How much is added behind each axis.
        group: Into how many independent ones the channels are divided.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    output_pads: tuple[int, ...]
    group: int = 1

    onnx = ("ConvTranspose",)
    onnx_names = (("output_pads", "output_padding"),)

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        require_unquantized(x, w, bias)
        self._check(x, w)
        features = int(w.shape[1]) * self.group
        fits = bias is None or bias.shape == (features,)
        what = "the bias must have one element for each output channel"
        require(fits, what, expected=[features], got=bias and bias.shape)
        axes = len(self.strides)
        ends = zip(self.full(x.shape, w.shape), self.pads[:axes], self.pads[axes:], strict=True)
        spatial = [add_dims(size, -before - after) for size, before, after in ends]
        positive = all(isinstance(size, str) or size >= 0 for size in spatial)
        require(positive, "the pads remove more elements than an axis has", got=spatial)
        return TensorType(common_element(x, w, bias), (x.shape[0], features, *spatial))

    def full(self, x: Shape, w: Shape) -> list[Dim]:
        """Return the lengths of the spatial axes before anything is cut off, from the inputs' shapes."""
        axes = zip(x[2:], w[2:], self.strides, self.dilations, self.output_pads, strict=True)
        return [
            add_dims(product((size, stride)), (int(kernel) - 1) * dilation + 1 - stride + behind)
            for size, kernel, stride, dilation, behind in axes
        ]

    def _check(self, x: TensorType, w: TensorType) -> None:
        axes = x.rank - 2
        ranks = [x.rank, w.rank]
        require(w.rank == x.rank >= 3, "input and weight must have the same rank, at least 3", got=ranks)
        require(all(isinstance(size, int) for size in w.shape), "the weight's shape must be static", got=list(w.shape))
        lengths = len(self.strides), len(self.dilations), len(self.output_pads), len(self.pads)
        what = "strides, dilations and output_padding need a number for each spatial axis, pads two"
        require(lengths == (axes, axes, axes, 2 * axes), what, expected=f"{axes} spatial axes", got=lengths)
        positive = (*self.strides, *self.dilations, *(int(size) for size in w.shape[2:]))
        require(min(positive) >= 1, "kernel sizes, strides and dilations must be positive", got=positive)
        require(min(*self.pads, *self.output_pads) >= 0, "pads cannot be negative", got=(*self.pads, *self.output_pads))
        require(self.group >= 1, "the groups must be positive", got=self.group)
        depth = w.shape[0]
        fits = isinstance(x.shape[1], str) or x.shape[1] == depth
        require(fits, "the input's channels do not match the weight", expected=depth, got=x.shape[1])
        divides = int(depth) % self.group == 0
        require(divides, "the groups must divide the input channels", expected=depth, got=self.group)

    def workspace(self, *types: TensorType | None) -> int:
        x, w = types[0], types[1]
        if x is None or w is None:
            return 0
        full = math.prod(int(size) for size in self.full(x.shape, w.shape))
        return int(x.shape[0]) * int(w.shape[1]) * self.group * full

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod(inputs[0]) * math.prod(inputs[1][1:])

    def evaluate(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        spatial = [int(size) for size in self.full(x.shape, w.shape)]
        y = np.zeros((x.shape[0], w.shape[1] * self.group, *spatial), x.dtype)
        inputs, outputs = w.shape[0] // self.group, w.shape[1]
        for g in range(self.group):
            part, weight = x[:, g * inputs : (g + 1) * inputs], w[g * inputs : (g + 1) * inputs]
            self._scatter(part, weight, y[:, g * outputs : (g + 1) * outputs])
        count = len(self.strides)
        ends = [size - behind for size, behind in zip(y.shape[2:], self.pads[count:], strict=True)]
        y = y[(slice(None), slice(None), *map(slice, self.pads[:count], ends))]
        y = y if bias is None else y + bias.reshape(-1, *(1,) * count)
        return np.ascontiguousarray(y)

    def _scatter(self, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> None:
        """Add the copies of the kernel to y, one element of the kernel for all elements of x at a time."""
        last = np.moveaxis(x, 1, -1)  # channels
        for k in itertools.product(*map(range, w.shape[2:])):
            starts = [i * dilation for i, dilation in zip(k, self.dilations, strict=True)]
            axes = zip(starts, x.shape[2:], self.strides, strict=True)
            places = [slice(start, start + max(size - 1, -1) * stride + 1, stride) for start, size, stride in axes]
            y[(slice(None), slice(None), *places)] += np.moveaxis(last @ w[(..., *k)], -1, 1)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x, w = source.input(0), source.input(1)
        require(w.type.rank >= 3, "a weight needs a spatial axis", got=list(w.type.shape))
        axes, kernel = w.type.rank - 2, w.type.shape[2:]
        ones, declared = (1,) * axes, source.attribute("kernel_shape", kernel)
        require(declared == kernel, "kernel_shape differs from the weight's shape", expected=kernel, got=declared)
        operator = cls(
            source.attribute("strides", ones),
            source.attribute("pads", (0, 0) * axes),
            source.attribute("dilations", ones),
            source.attribute("output_padding", (0,) * axes),
            source.attribute("group", 1),
        )
        operator._check(x.type, w.type)
        return source.add(_with_pads(operator, source, x.type, w.type), *source.inputs)


def _with_pads(operator: ConvTranspose, source: OnnxNode, x: TensorType, w: TensorType) -> ConvTranspose:
    """Return the operator with the pads that `auto_pad` or `output_shape` give."""
    auto, wanted = source.attribute("auto_pad", "NOTSET"), source.attribute("output_shape", ())
    if not wanted and auto not in ("SAME_UPPER", "SAME_LOWER"):
        return operator
    spatial = x.shape[2:]
    require(all(isinstance(size, int) for size in spatial), "the pads need the input's lengths", got=list(spatial))
    wanted = wanted or tuple(int(size) * stride for size, stride in zip(spatial, operator.strides, strict=True))
    require(len(wanted) == len(spatial), "output_shape needs each spatial axis", expected=len(spatial), got=wanted)
    excess = [int(full) - size for full, size in zip(operator.full(x.shape, w.shape), wanted, strict=True)]
    totals, short = [max(one, 0) for one in excess], [max(-one, 0) for one in excess]
    small, large = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    pads = small + large if auto == "SAME_UPPER" else large + small
    behind = tuple(pad + more for pad, more in zip(operator.output_pads, short, strict=True))
    return ConvTranspose(operator.strides, pads, operator.dilations, behind, operator.group)


OPERATORS = (ConvTranspose,)
