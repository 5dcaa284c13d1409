"""Operators that treat each element of one tensor alone: activations and other functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, need, plain
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Max, Min
from mlhood.compiler.operators.onnx_node import OnnxNode


class Function(Operator):
    """Base: y = function(x), of the type of x."""

    function: ClassVar[Callable[[np.ndarray], Any]]

    def infer(self, x: TensorType) -> TensorType:
        plain(x)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(type(self).function(x), x.dtype)


def _table(**functions: Callable[[np.ndarray], Any]) -> tuple[type[Function], ...]:
    return tuple(
        type(name, (Function,), {"function": staticmethod(function), "onnx": (name,), "__doc__": f"y = {name}(x)."})
        for name, function in functions.items()
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), x.dtype)


FUNCTIONS = _table(
    Abs=np.abs,
    Ceil=np.ceil,
    Cos=np.cos,
    Erf=_erf,
    Exp=np.exp,
    Floor=np.floor,
    HardSwish=lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    Log=np.log,
    Neg=np.negative,
    Not=np.logical_not,
    Reciprocal=np.reciprocal,
    Sigmoid=_sigmoid,
    Sign=np.sign,
    Sin=np.sin,
    Softplus=lambda x: np.logaddexp(x, 0),
    Softsign=lambda x: x / (1 + np.abs(x)),
    Sqrt=np.sqrt,
    Tanh=np.tanh,
)


class Round(Function):
    """y = the nearest integer, halves to the even one."""

    onnx = ("Round",)
    function = staticmethod(lambda x: np.rint(x))


class Relu(Operator):
    """y = max(x, 0)."""

    onnx = ("Relu",)

    def infer(self, x: TensorType) -> TensorType:
        plain(x)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, x.dtype.type(0))


@dataclass(frozen=True)
class Slope(Operator):
    """Base of activations with one or two numbers as attributes."""

    def infer(self, x: TensorType) -> TensorType:
        plain(x)
        need(x.is_float, "the operator needs floating-point numbers", got=x.element)
        return x


@dataclass(frozen=True)
class LeakyRelu(Slope):
    """y = x where x > 0, alpha x elsewhere."""

    alpha: float = 0.01

    onnx = ("LeakyRelu",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, x * x.dtype.type(self.alpha))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("alpha", 0.01)), source.input(0))


@dataclass(frozen=True)
class Elu(Slope):
    """y = gamma x where x > 0, gamma alpha (exp(x) - 1) elsewhere; Selu is Elu with its own two numbers."""

    alpha: float = 1.0
    gamma: float = 1.0

    onnx = ("Elu", "Selu")

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        number = x.dtype.type
        return number(self.gamma) * np.where(x > 0, x, number(self.alpha) * np.expm1(np.minimum(x, number(0))))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        alpha, gamma = (1.0, 1.0) if source.op_type == "Elu" else (1.6732632423543772, 1.0507009873554805)
        operator = cls(source.attribute("alpha", alpha), source.attribute("gamma", gamma))
        return source.add(operator, source.input(0))


@dataclass(frozen=True)
class HardSigmoid(Slope):
    """y = alpha x + beta, kept in [0, 1]."""

    alpha: float = 0.2
    beta: float = 0.5

    onnx = ("HardSigmoid",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        number = x.dtype.type
        return np.clip(x * number(self.alpha) + number(self.beta), number(0), number(1))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("alpha", 0.2), source.attribute("beta", 0.5)), source.input(0))


@dataclass(frozen=True)
class Gelu(Slope):
    """y = x Phi(x), by the error function or by the approximation with tanh (arXiv 1606.08415)."""

    approximate: str = "none"

    onnx = ("Gelu",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if self.approximate == "tanh":
            inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        else:
            inner = _erf(x / math.sqrt(2))
        return np.asarray(0.5 * x * (1 + inner), x.dtype)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("approximate", "none")), source.input(0))


@dataclass(frozen=True)
class Clip(Operator):
    """y = min(max(x, low), high); a limit that is None does not hold."""

    low: float | int | None = None
    high: float | int | None = None

    onnx = ("Clip",)

    def infer(self, x: TensorType) -> TensorType:
        plain(x)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        y = x if self.low is None else np.maximum(x, x.dtype.type(self.low))
        return y if self.high is None else np.minimum(y, x.dtype.type(self.high))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Take limits as attributes (opset 6) or as constants; limits computed when running become Max and Min."""
        if source.opset < 11:
            limits = source.attribute("min", None), source.attribute("max", None)
            return source.add(cls(*limits), source.input(0))
        if all(source.is_constant(i) for i in (1, 2) if source.has(i)):
            low, high = (source.static(i).item() if source.has(i) else None for i in (1, 2))
            return source.add(cls(low, high), source.input(0))
        value = source.input(0)
        if source.has(1):
            value = source.add(Max(), value, source.input(1))
        return source.add(Min(), value, source.input(2)) if source.has(2) else value


OPERATORS = (*FUNCTIONS, Round, Relu, LeakyRelu, Elu, HardSigmoid, Gelu, Clip)
