"""Sums and products of all elements up to each one, and matrices of ones on a diagonal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, Permutation, require, require_unquantized, unsupported
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, STAYS_FLOAT, transposed_axes
from mlhood.compiler.operators.cast import element_of, number_of
from mlhood.compiler.operators.creation import Creation
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Cumulative(Operator):
    """Base: y = function of all elements of x up to each one along `axis`.

    Attributes:
        axis: Along which axis.
        exclusive: Whether an element itself does not count.
        reverse: Whether the elements from each one on count.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    family = "arithmetic"
    quantization_rule = STAYS_FLOAT
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    function: ClassVar[Callable[..., Any]]
    neutral: ClassVar[int]

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        normalize_axis(self.axis, x.rank)
        require(x.element != "bool", "the operator requires numbers", got=x.element)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        x = np.flip(x, self.axis) if self.reverse else x
        y = type(self).function(x, axis=self.axis, dtype=x.dtype)
        if self.exclusive:
            first = np.full_like(np.take(x, range(min(1, x.shape[self.axis])), self.axis), self.neutral)
            y = np.concatenate([first, np.take(y, range(x.shape[self.axis] - 1), self.axis)], self.axis)
        return np.flip(y, self.axis) if self.reverse else y

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        axis = writer.constant(np.array(self.axis, np.int64))
        return writer.emit(self.name, *inputs, axis, name=name, exclusive=self.exclusive, reverse=self.reverse)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return replace(self, axis=transposed_axes([self.axis], permutation)[0]), permutation

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        axes = source.integers(1)
        require(len(axes) == 1, "the axis must be one number", got=axes)
        exclusive, reverse = (bool(source.attribute(name, 0)) for name in ("exclusive", "reverse"))
        return source.add(cls(axes[0], exclusive, reverse), source.input(0))


class CumSum(Cumulative):
    """y = the sum of the elements up to each one."""

    onnx = ("CumSum",)
    function = staticmethod(np.cumsum)
    neutral = 0


class CumProd(Cumulative):
    """y = the product of the elements up to each one."""

    onnx = ("CumProd",)
    function = staticmethod(np.cumprod)
    neutral = 1
    to_onnx = unsupported("the opsets that are written do not have it yet")


@dataclass(frozen=True)
class EyeLike(Creation):
    """A matrix of the shape of x: 1 on a diagonal, 0 elsewhere.

    Attributes:
        element: The result's element type.
        k: Which diagonal: above the main one if positive, below it if negative.
    """

    element: str
    k: int = 0

    onnx = ("EyeLike",)

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank == 2, "the input must be a matrix", got=list(x.shape))
        return TensorType(self.element, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.eye(*x.shape, k=self.k, dtype=self.element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("EyeLike", *inputs, name=name, dtype=number_of(self.element), k=self.k)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x, number = source.input(0), source.attribute("dtype", 0)
        return source.add(cls(element_of(number) if number else x.type.element, source.attribute("k", 0)), x)


OPERATORS = (CumSum, CumProd, EyeLike)
