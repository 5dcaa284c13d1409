"""Norms of windows, and operators that put windows back: the inverse of MaxPool, the sum of overlapping ones."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import add_dims, product
from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.indexing import require_equal, require_indices
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.pooling import Pool
from mlhood.compiler.operators.windows import Window, read_window


class Unpool(Operator):
    """Base: the elements of the result are those of windows, or zeros."""

    family = "pooling"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS


@dataclass(frozen=True)
class MaxUnpool(Unpool):
    """y = zeros, with each element of x at the flat index in y that `indices` tells: the inverse of a MaxPool.

    Inputs: x [N, C, spatial...]; indices, int64, as MaxPool returns them. They count in a tensor of the lengths that
    follow from the window, which `shape` pads with zeros, or cuts.

    Attributes:
        kernel: Sizes of the window.
        strides: Steps between windows.
        pads: How much the pooled tensor was padded before each axis, then after each.
        shape: Of y; () for the one that follows from the window.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    shape: tuple[int, ...] = ()

    arity = (2, 2)
    onnx = ("MaxUnpool",)

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_unquantized(x)
        require_indices(indices)
        Window(self.kernel, self.strides, self.pads, (1,) * len(self.kernel)).check(x)
        require_equal("there must be an index for each element", x.shape, indices.shape)
        counted = self._counted(x.shape)
        require(all(isinstance(axis, str) or axis >= 0 for axis in counted), "the pads exceed the windows", got=counted)
        require(len(self.shape) in (0, x.rank), "the shape needs a length for each axis", got=self.shape)
        require(min(self.shape, default=0) >= 0, "lengths cannot be negative", got=self.shape)
        return x.with_shape(self.shape or counted)

    def _counted(self, shape: tuple[Dim, ...]) -> list[Dim]:
        """Return the shape of the tensor in which the indices count."""
        count = len(self.kernel)
        pads = (before + after for before, after in zip(self.pads[:count], self.pads[count:], strict=True))
        axes = zip(shape[2:], self.kernel, self.strides, pads, strict=True)
        spatial = [add_dims(product((size, stride)), k - stride - pad) for size, k, stride, pad in axes]
        return [*shape[:2], *spatial]

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        counted = [int(axis) for axis in self._counted(x.shape)]
        y = np.zeros(math.prod(counted), x.dtype)
        valid = bool(((indices >= 0) & (indices < y.size)).all())
        require(valid, "an index is out of range", expected=f"0 to {y.size - 1}")
        y[indices.ravel()] = x.ravel()
        y = y.reshape(counted)
        if not self.shape:
            return y
        result = np.zeros(self.shape, x.dtype)
        common = tuple(slice(min(sizes)) for sizes in zip(counted, self.shape, strict=True))
        result[common] = y[common]
        return result

    def workspace(self, *types: TensorType | None) -> int:
        return 0 if types[0] is None else math.prod(int(axis) for axis in self._counted(types[0].shape))

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        window = {"kernel_shape": self.kernel, "strides": self.strides, "pads": self.pads}
        shape = [writer.integers(self.shape)] if self.shape else []
        return writer.emit("MaxUnpool", *inputs, *shape, name=name, **window)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        kernel = source.attribute("kernel_shape", ())
        strides, pads = source.attribute("strides", (1,) * len(kernel)), source.attribute("pads", (0, 0) * len(kernel))
        shape = source.integers(2) if source.has(2) else ()
        return source.add(cls(kernel, strides, pads, shape), source.input(0), source.input(1))


@dataclass(frozen=True)
class Col2Im(Unpool):
    """y = an image in which each element is the sum of what the windows have there: the adjoint of taking windows.

    Source: ONNX, operator Col2Im; torch's fold. Input: x [N, C * elements of a window, windows].
    Output: [N, C, image...].

    Attributes:
        image: Lengths of the image's axes.
        kernel: Sizes of the window.
        strides: Steps between windows.
        pads: How much the image is padded before each axis, then after each.
        dilations: Distances between neighbouring elements of a window.
    """

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    onnx = ("Col2Im",)

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window(self.kernel, self.strides, self.pads, self.dilations)

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.rank == 3, "the windows must have three axes", expected="[N, C * elements, windows]", got=x.shape)
        require(min(self.image, default=0) >= 0, "lengths cannot be negative", got=self.image)
        self.window.check(TensorType(x.element, (1, 1, *self.image)))
        size, channels = math.prod(self.kernel), x.shape[1]
        known = isinstance(channels, int)
        require(known, "the channels of the windows must be known", got=channels)
        require(int(channels) % size == 0, "the channels must be whole windows", expected=f"of {size}", got=channels)
        count = math.prod(int(axis) for axis in self.window.output(self.image))
        require_equal("the windows do not cover the image", (count,), x.shape[2:])
        return x.with_shape((x.shape[0], int(channels) // size, *self.image))

    def _padded(self) -> list[int]:
        return [size + sum(pads) for size, pads in zip(self.image, self.window.ends, strict=True)]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        counts = [int(axis) for axis in self.window.output(self.image)]
        channels = x.shape[1] // math.prod(self.kernel)
        windows = x.reshape(x.shape[0], channels, *self.kernel, *counts)
        y = np.zeros((x.shape[0], channels, *self._padded()), x.dtype)
        for k in itertools.product(*map(range, self.kernel)):
            axes = zip(k, self.dilations, counts, self.strides, strict=True)
            places = (slice(i * d, i * d + (count - 1) * stride + 1, stride) for i, d, count, stride in axes)
            y[(slice(None), slice(None), *places)] += windows[(slice(None), slice(None), *k)]
        inside = (slice(before, before + size) for (before, _), size in zip(self.window.ends, self.image, strict=True))
        return np.ascontiguousarray(y[(slice(None), slice(None), *inside)])

    def workspace(self, *types: TensorType | None) -> int:
        x = types[0]
        return (
            0 if x is None else int(x.shape[0]) * int(x.shape[1]) // math.prod(self.kernel) * math.prod(self._padded())
        )

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        window = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        sizes = writer.integers(self.image), writer.integers(self.kernel)
        return writer.emit("Col2Im", *inputs, *sizes, name=name, **window)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        image, kernel = source.integers(1), source.integers(2)
        ones = (1,) * len(image)
        strides, dilations = source.attribute("strides", ones), source.attribute("dilations", ones)
        pads = source.attribute("pads", (0, 0) * len(image))
        return source.add(cls(image, kernel, strides, pads, dilations), source.input(0))


@dataclass(frozen=True)
class LpPool(Pool):
    """y = the norm of each window, the p-th root of the sum of |x|^p; elements of the padding are zeros.

    Attributes:
        p: Which norm.
    """

    p: int = 2

    onnx = ("LpPool",)
    quantization_rule = STAYS_FLOAT
    value_range = NO_BOUNDS

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "a norm requires floating-point elements", got=x.element)
        require(self.p >= 1, "the norm must be positive", got=self.p)
        return super().infer(x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        kernel_axes = tuple(range(x.ndim, 2 * x.ndim - 2))
        powers = np.power(np.abs(x), x.dtype.type(self.p))
        total = self.window.view(powers, 0).sum(axis=kernel_axes, dtype=x.dtype)
        return np.power(total, x.dtype.type(1 / self.p))

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        return writer.emit("LpPool", *inputs, name=name, p=self.p, **self.onnx_window)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        window = read_window(source, source.input(0).type, source.attribute("kernel_shape", ()))
        sizes = (window.kernel, window.strides, window.pads, window.dilations, window.ceil)
        return source.add(cls(*sizes, p=source.attribute("p", 2)), source.input(0))


OPERATORS = (LpPool, MaxUnpool, Col2Im)
