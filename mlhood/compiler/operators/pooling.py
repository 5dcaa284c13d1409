"""Pooling: the largest element or the mean of each window, or of each channel."""

from __future__ import annotations

import functools
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import Operator, Range, namespace, require, require_channels, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import hull
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.reduction import mean
from mlhood.compiler.operators.windows import Window, read_window


@dataclass(frozen=True)
class PoolOperator(Operator):
    """Base of pooling by windows: x [N, C, spatial...] -> y [N, C, windows...]."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False

    family = "pooling"

    @property
    def onnx_window(self) -> dict[str, Any]:
        """The window as attributes of an ONNX node."""
        dilations = self.dilations if max(self.dilations) > 1 else None
        window = {"kernel_shape": self.kernel, "strides": self.strides, "pads": self.pads, "dilations": dilations}
        return {**window, "ceil_mode": self.ceil}

    @property
    def window(self) -> Window:
        """The sliding window."""
        return Window(self.kernel, self.strides, self.pads, self.dilations, self.ceil)

    def infer(self, x: TensorType) -> Any:
        self.window.check(x)
        pairs = [(pad, span) for ends, span in zip(self.window.ends, self.window.spans, strict=True) for pad in ends]
        valid = bool(self.kernel) and all(isinstance(pad, str) or pad < span for pad, span in pairs)
        require(valid, "pads must be smaller than the window", got=self.pads)
        return x.with_shape((*x.shape[:2], *self.window.output(x.shape[2:])))

    def workspace(self, *types: TensorType | None) -> int:
        return self.window.workspace(types[0].shape) if types[0] is not None else 0

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        # all elements of a dilated window may be padding, and so may those of a window that `ceil` adds
        outside = any(self.pads) and max(self.dilations) > 1
        return None if self.ceil or outside else inputs[0]


def _pool_attributes(source: OnnxNode) -> dict[str, Any]:
    x = source.input(0).type
    return asdict(read_window(source, x, source.attribute("kernel_shape", ())))


@dataclass(frozen=True)
class MaxPool(PoolOperator):
    """y = the largest element of each window; with `indices`, also its flat index in x.

    Attributes:
        indices: Whether there is the second output, int64.
        column_major: Whether the spatial axes are counted with the first one fastest.
    """

    indices: bool = False
    column_major: bool = False

    onnx = ("MaxPool",)
    quantization_rule = "maximum"

    def infer(self, x: TensorType) -> Any:
        y = super().infer(x)
        return (y, TensorType("int64", y.shape)) if self.indices else y

    def evaluate(self, x: np.ndarray) -> Any:
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return self._with_indices(x, lowest) if self.indices else self._largest(x, lowest)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        if not self.indices:
            return writer.emit("MaxPool", *inputs, name=name, **self.onnx_window)
        window = {**self.onnx_window, "dilations": self.dilations, "storage_order": self.column_major}
        names = [name, writer.name(writer.node.outputs[1])]
        return writer.emit_all("MaxPool", *inputs, names=names, **window)[0]

    def _largest(self, x: np.ndarray, lowest: float) -> np.ndarray:
        """Reduce one axis after the other: the maximum of all elements is the maximum of the rows' maxima."""
        y = self.window.padded(x, lowest)
        for axis, count in enumerate(self.window.output(x.shape[2:])):
            y = functools.reduce(np.maximum, self.window.taps(y, axis, int(count)))
        return y

    def _with_indices(self, x: np.ndarray, lowest: float) -> tuple[np.ndarray, np.ndarray]:
        windows = self.window.view(x, lowest)
        flat = windows.reshape(*windows.shape[: x.ndim], math.prod(self.kernel))
        indices = self.window.view(self._flat_indices(x.shape), 0).reshape(flat.shape)
        inside = self.window.view(np.ones((1, 1, *x.shape[2:]), bool), False).reshape(1, 1, *flat.shape[2:])
        best = flat.max(axis=-1, keepdims=True)
        first = (((flat == best) | (flat != flat)) & inside).argmax(axis=-1)[..., None]  # or NaN, if there is any
        return best[..., 0], np.take_along_axis(indices, first, -1)[..., 0]

    def _flat_indices(self, shape: tuple[int, ...]) -> np.ndarray:
        indices = np.arange(np.prod(shape, dtype=np.int64), dtype=np.int64)
        if not self.column_major:
            return indices.reshape(shape)
        reversed_axes = indices.reshape(*shape[:2], *shape[:1:-1])
        return reversed_axes.transpose(0, 1, *range(len(shape) - 1, 1, -1))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        indices = source.uses_output(1)
        column_major = bool(source.attribute("storage_order", 0)) and indices
        operator = cls(**_pool_attributes(source), indices=indices, column_major=column_major)
        return source.add_all(operator, source.input(0))


@dataclass(frozen=True)
class AveragePool(PoolOperator):
    """y = the mean of each window.

    Attributes:
        count_pads: Whether the pads count as zeros; otherwise only elements of x count.
    """

    count_pads: bool = False

    onnx = ("AveragePool",)
    quantization_rule = "mean_pool"

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the mean requires floating-point elements", got=x.element)
        return super().infer(x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        kernel_axes = tuple(range(x.ndim, 2 * x.ndim - 2))
        total = self.window.view(x, 0).sum(axis=kernel_axes, dtype=x.dtype)
        ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
        count = self.window.view(ones, 0, inner=1 if self.count_pads else 0).sum(axis=kernel_axes, dtype=x.dtype)
        return total / count

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("AveragePool", *inputs, name=name, count_include_pad=self.count_pads, **self.onnx_window)

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        bounds = super().value_range(y, *inputs)
        return hull(bounds, (0.0, 0.0)) if bounds and self.count_pads and any(self.pads) else bounds

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        operator = cls(**_pool_attributes(source), count_pads=bool(source.attribute("count_include_pad", 0)))
        return source.add(operator, source.input(0))


class GlobalPool(Operator):
    """Base: y[n, c, 1...] is within the range of x[n, c]."""

    family = "pooling"

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return inputs[0]


class GlobalAveragePool(GlobalPool):
    """y[n, c, 1...] = the mean of x[n, c]."""

    onnx = ("GlobalAveragePool",)
    quantization_rule = "global_mean"

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require_channels(x)
        return x.with_shape((*x.shape[:2], *(1,) * (x.rank - 2)))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return mean(namespace(x), x, tuple(range(2, x.ndim)))


class GlobalMaxPool(GlobalPool):
    """y[n, c, 1...] = the largest element of x[n, c]."""

    onnx = ("GlobalMaxPool",)
    quantization_rule = "maximum"

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank >= 2, "the input needs a batch and a channel axis", got=list(x.shape))
        return x.with_shape((*x.shape[:2], *(1,) * (x.rank - 2)))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.max(axis=tuple(range(2, x.ndim)), keepdims=True)


OPERATORS = (MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool)
