"""Normalisation: by statistics, by neighbouring channels, to probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import (
    Operator,
    Permutation,
    Range,
    common_element,
    namespace,
    require,
    require_channels,
    require_unquantized,
    single,
)
from mlhood.compiler.hir.types import TensorType, broadcast, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import (
    real_along,
    transposed_axes,
)
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.reduction import mean as mean_of
from mlhood.errors import CompilerError


def _channels(x: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Return a vector [C] in the shape that broadcasts to x [N, C, ...]."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


def _check_channels(x: TensorType, *vectors: TensorType) -> None:
    require_unquantized(x, *vectors)
    require(x.rank >= 2, "the input needs a batch and a channel axis", got=list(x.shape))
    for vector in vectors:
        fits = vector.rank == 1 and (vector.shape[0] == x.shape[1] or isinstance(x.shape[1], str))
        require(fits, "there must be one element for each channel", expected=[x.shape[1]], got=list(vector.shape))


class Normalization(Operator):
    """Base: the elements of x, shifted and scaled."""

    family = "normalization"


@dataclass(frozen=True)
class BatchNormalization(Normalization):
    """y = (x - mean) / sqrt(variance + epsilon) scale + bias, per channel: x [N, C, ...], all others [C]."""

    epsilon: float = single(1e-5)

    onnx = ("BatchNormalization",)

    def infer(
        self, x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType
    ) -> TensorType:
        _check_channels(x, scale, bias, mean, variance)
        return x

    def evaluate(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> np.ndarray:
        factor = scale / namespace(x).sqrt(variance + variance.dtype.type(self.epsilon))
        y = (x - _channels(x, mean)) * _channels(x, factor) + _channels(x, bias)
        return y.astype(x.dtype, copy=False)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        training = source.attribute("training_mode", 0) or (source.opset < 7 and not source.attribute("is_test", 0))
        if training or any(map(source.uses_output, range(1, 5))):
            what = "normalising by the batch's own statistics is training"
            raise source.unsupported(what, "export in evaluation mode")
        if not source.attribute("spatial", 1):
            raise source.unsupported("one mean for each element (spatial = 0) is not supported")
        return source.add(cls(source.attribute("epsilon", 1e-5)), *source.inputs)


@dataclass(frozen=True)
class InstanceNormalization(Normalization):
    """y = (x - mean(x[n, c])) / sqrt(var(x[n, c]) + epsilon) scale[c] + bias[c]: x [N, C, ...]."""

    epsilon: float = single(1e-5)

    onnx = ("InstanceNormalization",)

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        _check_channels(x, scale, bias)
        return x

    def evaluate(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        xp, axes = namespace(x), tuple(range(2, x.ndim))
        centred = x - mean_of(xp, x, axes)
        spread = xp.sqrt(mean_of(xp, centred**2, axes) + x.dtype.type(self.epsilon))
        return centred / spread * _channels(x, scale) + _channels(x, bias)


@dataclass(frozen=True)
class LayerNormalization(Normalization):
    """y = (x - mean) / sqrt(var + epsilon) scale + bias; mean and var over `axis` and all after it.

    With `statistics`, also the mean and 1 / sqrt(var + epsilon), float32, these axes one long.
    """

    axis: int
    epsilon: float = single(1e-5)
    statistics: bool = False

    onnx = ("LayerNormalization",)

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType | None = None) -> Any:
        require_unquantized(x, scale, bias)
        common_element(x, scale, bias)
        axis = normalize_axis(self.axis, x.rank)
        for vector in (scale, bias):
            fits = vector is None or broadcast(x.shape, vector.shape) == x.shape
            what = "scale and bias cannot be broadcast to the input"
            require(fits, what, expected=x.shape[axis:], got=vector and vector.shape)
        kept = TensorType("float32", (*x.shape[:axis], *(1,) * (x.rank - axis)))
        return (x, kept, kept) if self.statistics else x

    def evaluate(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None) -> Any:
        xp, axes = namespace(x), tuple(range(self.axis % x.ndim, x.ndim))
        wide = x if x.dtype == np.float64 else x.astype(np.float32)
        centre = mean_of(xp, wide, axes)
        inverse = 1 / xp.sqrt(mean_of(xp, (wide - centre) ** 2, axes) + wide.dtype.type(self.epsilon))
        y = xp.asarray((wide - centre) * inverse * scale + (0 if bias is None else bias), x.dtype)
        return (y, xp.asarray(centre, np.float32), xp.asarray(inverse, np.float32)) if self.statistics else y

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        names = [name, *map(writer.name, writer.node.outputs[1:])]
        attributes = {"axis": self.axis, "epsilon": self.epsilon}
        return writer.emit_all("LayerNormalization", *inputs, names=names, **attributes)[0]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        statistics = source.uses_output(1) or source.uses_output(2)
        operator = cls(source.attribute("axis", -1), source.attribute("epsilon", 1e-5), statistics)
        return source.add_all(operator, *source.inputs)


@dataclass(frozen=True)
class LocalResponseNormalization(Normalization):
    """y[n, c] = x[n, c] / (bias + alpha / size * sum of x[n, i]^2)^beta, i over `size` channels around c."""

    size: int = 0
    alpha: float = single(0.0001)
    beta: float = 0.75
    bias: float = 1.0

    onnx = ("LRN",)

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require_channels(x)
        require(self.size >= 1, "the number of channels must be positive", got=self.size)
        return x

    def workspace(self, *types: TensorType | None) -> int:
        return 0 if types[0] is None else 3 * int(types[0].size)  # padded by at most all channels on both sides

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        # no more than all channels are around any
        before, after = (min(size, x.shape[1]) for size in ((self.size - 1) // 2, self.size // 2))
        squares = namespace(x).pad(x**2, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
        total = sum(squares[:, i : i + x.shape[1]] for i in range(before + after + 1))
        number = x.dtype.type
        return x / (number(self.bias) + number(self.alpha / self.size) * total) ** number(self.beta)


@dataclass(frozen=True)
class Softmax(Normalization):
    """y = exp(x) / sum of exp(x) over `axes`, which opset 12 and older took all from one on."""

    axes: tuple[int, ...]

    onnx = ("Softmax",)
    family = "activation"

    def infer(self, x: TensorType) -> TensorType:
        return real_along(x, self.axes)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        powers = namespace(x).exp(self.shifted(x))
        return powers / powers.sum(axis=self.axes, keepdims=True)

    def shifted(self, x: np.ndarray) -> np.ndarray:
        """Return x less its largest element, so that exp does not overflow."""
        return x - x.max(axis=self.axes, keepdims=True, initial=-np.inf)  # of no elements, too

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        if len(self.axes) != 1:
            raise CompilerError("ONNX has no such operator over several axes", where=writer.node.where, got=self.axes)
        return writer.emit(self.name, *inputs, name=name, axis=self.axes[0])

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return replace(self, axes=transposed_axes(self.axes, permutation)), permutation

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return (0.0, 1.0)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        axis = normalize_axis(source.attribute("axis", -1 if source.opset >= 13 else 1), x.type.rank)
        axes = (axis,) if source.opset >= 13 else tuple(range(axis, x.type.rank))
        return source.add(cls(axes), x)


class LogSoftmax(Softmax):
    """y = x - log of the sum of exp(x) over `axes`."""

    onnx = ("LogSoftmax",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        xp, shifted = namespace(x), self.shifted(x)
        return shifted - xp.log(xp.exp(shifted).sum(axis=self.axes, keepdims=True))

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return (-math.inf, 0.0)


OPERATORS = (
    BatchNormalization,
    InstanceNormalization,
    LayerNormalization,
    LocalResponseNormalization,
    Softmax,
    LogSoftmax,
)
