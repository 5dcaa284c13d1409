"""Elementwise operators of two or three tensors, which are broadcast to one shape, and remainders."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Range, common_element, namespace, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, broadcast, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.shape import Unsqueeze


class Binary(Elementwise):
    """Base: y = function(xp, a, b), xp being their `namespace`, with the element type of a and b, or `result`."""

    family = "arithmetic"
    function: ClassVar[Callable[[Any, np.ndarray, np.ndarray], Any]]
    result: ClassVar[str | None] = None

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require_unquantized(a, b)
        element = common_element(a, b)
        return TensorType(self.result or element, broadcast(a.shape, b.shape))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        xp = namespace(a)
        return xp.asarray(type(self).function(xp, a, b))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Import a node of one, two or more inputs: Max, Min and Sum of several become a chain."""
        value = source.input(0)
        if len(source.inputs) == 1:
            return source.add(Identity(), value)
        for position in range(1, len(source.inputs)):
            axis = source.attribute("axis", None) if source.opset < 7 else None
            value = source.add(cls(), value, align(source, value, source.input(position), axis))
        return value


def align(source: OnnxNode, a: Value, b: Value, axis: int | None) -> Value:
    """Return b, broadcast such that its first axis is the given one of a, as opset 6 and older specify it."""
    missing = 0 if axis is None else a.type.rank - normalize_axis(axis, a.type.rank) - b.type.rank
    return source.add(Unsqueeze(tuple(range(-missing, 0))), b) if missing > 0 else b


def _divide(xp: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return xp.divide(a, b)
    quotient = xp.floor_divide(a, b)  # rounds down, whereas ONNX rounds towards zero
    return (quotient + ((quotient < 0) & (quotient * b != a))).astype(a.dtype)


def _sum_range(operator: Binary, y: TensorType, a: Range, b: Range) -> Range | None:
    low, high = a[0] + b[0], a[1] + b[1]
    bounds = low if low == low else -math.inf, high if high == high else math.inf
    return bounds if y.is_float else None  # sums of integers may wrap around


def _bounds_by(choose: Callable) -> Callable[..., Range]:
    return lambda operator, y, a, b: (choose(a[0], b[0]), choose(a[1], b[1]))


def _define(name: str, function: Callable, doc: str, **members: Any) -> type:
    return type(name, (Binary,), {"function": staticmethod(function), "onnx": (name,), "__doc__": doc, **members})


_SWAPS: dict[str, Any] = {"commutative": True}
_COMPARISON: dict[str, Any] = {"result": "bool"}

_SUM: dict[str, Any] = {"onnx": ("Add", "Sum"), "quantization_rule": "sum", "value_range": _sum_range}

Add = _define("Add", lambda xp, a, b: xp.add(a, b), "y = a + b.", **_SUM, **_SWAPS)
Sub = _define("Sub", lambda xp, a, b: xp.subtract(a, b), "y = a - b.")
Mul = _define("Mul", lambda xp, a, b: xp.multiply(a, b), "y = a b.", quantization_rule="product", **_SWAPS)
Div = _define("Div", _divide, "y = a / b; of integers, towards zero.")
Max = _define(
    "Max", lambda xp, a, b: xp.maximum(a, b), "y = the larger of a and b.", value_range=_bounds_by(max), **_SWAPS
)
Min = _define(
    "Min", lambda xp, a, b: xp.minimum(a, b), "y = the smaller of a and b.", value_range=_bounds_by(min), **_SWAPS
)
And = _define("And", lambda xp, a, b: xp.logical_and(a, b), "y = a and b.", **_SWAPS)
Or = _define("Or", lambda xp, a, b: xp.logical_or(a, b), "y = a or b.", **_SWAPS)
Xor = _define("Xor", lambda xp, a, b: xp.logical_xor(a, b), "y = a or b, but not both.", **_SWAPS)
Equal = _define("Equal", lambda xp, a, b: xp.equal(a, b), "y = a == b.", **_COMPARISON, **_SWAPS)
Greater = _define("Greater", lambda xp, a, b: xp.greater(a, b), "y = a > b.", **_COMPARISON)
GreaterOrEqual = _define("GreaterOrEqual", lambda xp, a, b: xp.greater_equal(a, b), "y = a >= b.", **_COMPARISON)
Less = _define("Less", lambda xp, a, b: xp.less(a, b), "y = a < b.", **_COMPARISON)
LessOrEqual = _define("LessOrEqual", lambda xp, a, b: xp.less_equal(a, b), "y = a <= b.", **_COMPARISON)


class PRelu(Binary):
    """y = a b where a < 0, a elsewhere; the slope b is broadcast to the shape of a."""

    onnx = ("PRelu",)
    family = "activation"

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require_unquantized(a, b)
        common_element(a, b)
        fits = broadcast(a.shape, b.shape) == a.shape
        require(fits, "the slope cannot be broadcast to the input's shape", expected=a.shape, got=b.shape)
        return a

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return namespace(a).where(a < 0, a * b, a)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        a, b = source.input(0), source.input(1)
        along_channels = source.opset < 7 and b.type.shape not in ((), (1,))
        return source.add(cls(), a, align(source, a, b, 1 if along_channels else None))


class Pow(Binary):
    """y = a to the power of b, with the element type of a; that of b may differ."""

    onnx = ("Pow",)

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        require_unquantized(a, b)
        return TensorType(a.element, broadcast(a.shape, b.shape))

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind in "iu" and b.dtype.kind in "iu" and b.min(initial=0) >= 0:
            return np.power(a, b.astype(a.dtype))
        base = a if a.dtype.kind == "f" else a.astype(np.float64)
        return np.asarray(np.power(base, b.astype(base.dtype)), a.dtype)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(), *source.inputs)


class Where(Elementwise):
    """y = a where the condition holds, b elsewhere."""

    onnx = ("Where",)
    family = "arithmetic"

    def infer(self, condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
        require_unquantized(a, b)
        require(condition.element == "bool", "the condition must be bool", got=condition.element)
        return TensorType(common_element(a, b), broadcast(condition.shape, a.shape, b.shape))

    def evaluate(self, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return namespace(a).where(condition, a, b)


_COMPARISONS = (Equal, Greater, GreaterOrEqual, Less, LessOrEqual)


@dataclass(frozen=True)
class Mod(Binary):
    """y = the remainder of a / b, broadcast, with the sign of b.

    Attributes:
        truncated: Whether the quotient is rounded towards zero, so that y has the sign of a, as C's fmod.
    """

    truncated: bool = False

    onnx = ("Mod",)
    onnx_names = (("truncated", "fmod"),)

    def evaluate(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        xp = namespace(a)
        return xp.asarray((xp.fmod if self.truncated else xp.mod)(a, b))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str | None:
        """Export the operator; ONNX has that of floats, rounded down, from opset 28 on only."""
        real = writer.node.outputs[0].type.is_float
        return None if real and not self.truncated else super().to_onnx(writer, inputs, name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(bool(source.attribute("fmod", 0))), *source.inputs)


OPERATORS = (Add, Sub, Mul, Div, Max, Min, And, Or, Xor, *_COMPARISONS, PRelu, Pow, Where, Mod)
