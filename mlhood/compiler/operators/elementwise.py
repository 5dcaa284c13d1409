"""Elementwise operators of one tensor: activations, other functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, Range, namespace, require, require_unquantized, single
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Max, Min
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


class Unary(Elementwise):
    """Base: y = f(x), with the type of x.

    Class attributes:
        fusible: It can be fused into the layer or addition before it, see `passes.fusion`.
        saturates_at: For fusible operators that are quantised to a table: by bytes per integer, the range of x outside
            of which y changes by less than one of 256 or 65,536 steps; None as upper end if y grows without bound.
    """

    family = "activation"
    fusible: ClassVar[bool] = False
    saturates_at: ClassVar[Mapping[int, tuple[float, float | None]]] = {}

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return x


class Function(Unary):
    """Base: y = function(xp, x), without attributes; xp is the `namespace` of x."""

    function: ClassVar[Callable[[Any, np.ndarray], Any]]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        xp = namespace(x)
        return xp.asarray(type(self).function(xp, x), x.dtype)


class RealFunction(Function):
    """Base: y = function(x) of floating-point numbers; NaN where it is not defined."""

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the operator requires floating-point elements", got=x.element)
        return x


def _define(
    name: str, function: Callable[[Any, np.ndarray], Any], base: type[Function] = Function, **members: Any
) -> type[Function]:
    doc = f"y = {name}(x)."
    return type(name, (base,), {"function": staticmethod(function), "onnx": (name,), "__doc__": doc, **members})


def _sigmoid(xp: Any, x: np.ndarray) -> np.ndarray:
    return xp.where(x >= 0, 1 / (1 + xp.exp(-xp.abs(x))), xp.exp(-xp.abs(x)) / (1 + xp.exp(-xp.abs(x))))


def _erf(xp: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), x.dtype)


def _within(low: float, high: float) -> Callable[..., Range]:
    """Return a rule for `value_range`: the bounds of the function's own values."""
    return lambda operator, y, x: (low, high)


_TABLE: dict[str, Any] = {"quantization_rule": "table"}
FUNCTIONS = (
    _define("Acos", lambda xp, x: xp.arccos(x), RealFunction),
    _define("Acosh", lambda xp, x: xp.arccosh(x), RealFunction),
    _define("Asin", lambda xp, x: xp.arcsin(x), RealFunction),
    _define("Asinh", lambda xp, x: xp.arcsinh(x), RealFunction, **_TABLE),
    _define("Atan", lambda xp, x: xp.arctan(x), RealFunction, **_TABLE),
    _define("Atanh", lambda xp, x: xp.arctanh(x), RealFunction),
    _define("Cosh", lambda xp, x: xp.cosh(x), RealFunction),
    _define("Sinh", lambda xp, x: xp.sinh(x), RealFunction),
    _define("Tan", lambda xp, x: xp.tan(x), RealFunction),
    _define("Abs", lambda xp, x: xp.abs(x), **_TABLE),
    _define("Ceil", lambda xp, x: xp.ceil(x)),
    _define("Cos", lambda xp, x: xp.cos(x)),
    _define("Erf", _erf, **_TABLE),
    _define("Exp", lambda xp, x: xp.exp(x), value_range=_within(0.0, math.inf)),
    _define("Floor", lambda xp, x: xp.floor(x)),
    _define(
        "HardSwish",
        lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1),
        fusible=True,
        saturates_at={1: (-3.0, None), 2: (-3.0, None)},
        **_TABLE,
    ),
    _define("Log", lambda xp, x: xp.log(x)),
    _define("Neg", lambda xp, x: xp.negative(x), **_TABLE),
    _define("Not", lambda xp, x: xp.logical_not(x)),
    _define("Reciprocal", lambda xp, x: xp.reciprocal(x)),
    _define(
        "Sigmoid",
        _sigmoid,
        value_range=_within(0.0, 1.0),
        fusible=True,
        saturates_at={1: (-6.0, 6.0), 2: (-11.0, 11.0)},  # for 8 bits as in Glow
        **_TABLE,
    ),
    _define("Sign", lambda xp, x: xp.sign(x)),
    _define("Sin", lambda xp, x: xp.sin(x)),
    _define("Softplus", lambda xp, x: xp.logaddexp(x, 0), **_TABLE),
    _define("Softsign", lambda xp, x: x / (1 + xp.abs(x)), **_TABLE),
    _define("Sqrt", lambda xp, x: xp.sqrt(x), value_range=_within(0.0, math.inf)),
    _define(
        "Tanh",
        lambda xp, x: xp.tanh(x),
        value_range=_within(-1.0, 1.0),
        fusible=True,
        saturates_at={1: (-3.0, 3.0), 2: (-6.0, 6.0)},  # for 8 bits as in Glow
        **_TABLE,
    ),
)


class Silu(Function):
    """y = x sigmoid(x), the sigmoid linear unit (arXiv 1702.03118)."""

    function = staticmethod(lambda xp, x: x * _sigmoid(xp, x))
    quantization_rule = "table"

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Mul", inputs[0], writer.emit("Sigmoid", inputs[0]), name=name)


class Round(Function):
    """y = x rounded to the nearest integer, ties to even."""

    onnx = ("Round",)
    function = staticmethod(lambda xp, x: xp.rint(x))


class Relu(Unary):
    """y = max(x, 0)."""

    onnx = ("Relu",)
    fusible = True
    quantization_rule = "rescale"
    limits = (0, math.inf)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return namespace(x).maximum(x, x.dtype.type(0))

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return _clipped(inputs[0], self.limits)


def _clipped(x: Range, limits: Range) -> Range:
    low, high = (min(max(end, limits[0]), limits[1]) for end in x)
    return low, high


@dataclass(frozen=True)
class Slope(Unary):
    """Base of floating-point activations with attributes, which have the same names in ONNX."""

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the operator requires floating-point elements", got=x.element)
        return x


@dataclass(frozen=True)
class LeakyRelu(Slope):
    """y = alpha x where x < 0, x elsewhere."""

    alpha: float = single(0.01)

    onnx = ("LeakyRelu",)
    fusible = True
    quantization_rule = "rescale"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return namespace(x).where(x < 0, x * x.dtype.type(self.alpha), x)

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        low, high = (end if end > 0 else end * self.alpha for end in inputs[0])
        return (low, high) if self.alpha > 0 else None


@dataclass(frozen=True)
class Elu(Slope):
    """y = gamma x where x > 0, gamma alpha (exp(x) - 1) elsewhere; Selu has other values of alpha and gamma."""

    alpha: float = 1.0
    gamma: float = 1.0

    onnx = ("Elu", "Selu")
    quantization_rule = "table"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        xp, number = namespace(x), x.dtype.type
        return number(self.gamma) * xp.where(x > 0, x, number(self.alpha) * xp.expm1(xp.minimum(x, number(0))))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        if self.gamma == 1:
            return writer.emit("Elu", *inputs, name=name, alpha=self.alpha)
        return writer.emit("Selu", *inputs, name=name, alpha=self.alpha, gamma=self.gamma)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        alpha, gamma = (1.0, 1.0) if source.op_type == "Elu" else (1.6732632423543772, 1.0507009873554805)
        operator = cls(source.attribute("alpha", alpha), source.attribute("gamma", gamma))
        return source.add(operator, source.input(0))


@dataclass(frozen=True)
class HardSigmoid(Slope):
    """y = alpha x + beta, clamped to [0, 1]."""

    alpha: float = single(0.2)
    beta: float = 0.5

    onnx = ("HardSigmoid",)
    quantization_rule = "table"
    value_range = _within(0.0, 1.0)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        number = x.dtype.type
        return namespace(x).clip(x * number(self.alpha) + number(self.beta), number(0), number(1))


@dataclass(frozen=True)
class Gelu(Slope):
    """y = x Phi(x), by the error function or the approximation with tanh (arXiv 1606.08415)."""

    approximate: str = "none"

    onnx = ("Gelu",)
    quantization_rule = "table"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if self.approximate == "tanh":
            inner = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        else:
            inner = _erf(np, x / math.sqrt(2))
        return np.asarray(0.5 * x * (1 + inner), x.dtype)


@dataclass(frozen=True)
class Clip(Unary):
    """y = min(max(x, low), high); None means no limit."""

    low: float | int | None = None
    high: float | int | None = None

    onnx = ("Clip",)
    fusible = True
    quantization_rule = "rescale"

    @property
    def limits(self) -> Range:
        """The limits, infinite where there is none."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        xp, number = namespace(x), x.dtype.type
        y = x if self.low is None else xp.maximum(x, number(self.low))
        return y if self.high is None else xp.minimum(y, number(self.high))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        x = writer.node.inputs[0]
        element = "float32" if x is None or x.type.quantization else x.type.element
        limits = ["" if end is None else writer.constant(np.array(end, element)) for end in (self.low, self.high)]
        return writer.emit("Clip", *inputs, *limits, name=name)

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return _clipped(inputs[0], self.limits)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Import limits that are attributes (opset 6) or constants; limits computed at run time become Max and Min.

        No element is less or greater than a limit that is NaN, so it is no limit, by ONNX's definition as a function.
        """
        if source.opset < 11:
            limits = source.attribute("min", None), source.attribute("max", None)
        elif all(source.is_constant(i) for i in (1, 2) if source.has(i)):
            limits = tuple(source.static(i).item() if source.has(i) else None for i in (1, 2))
        else:
            return cls._import_computed(source)
        return source.add(cls(*(None if limit != limit else limit for limit in limits)), source.input(0))

    @staticmethod
    def _import_computed(source: OnnxNode) -> Value:
        value = source.input(0)
        if source.has(1):
            value = source.add(Max(), value, source.input(1))
        return source.add(Min(), value, source.input(2)) if source.has(2) else value


def limits_of(operator: Operator) -> Range:
    """Return the limits of a Clip or Relu."""
    return operator.limits if isinstance(operator, Clip) else Relu.limits


UNARY = (*FUNCTIONS, Silu, Round, Relu, LeakyRelu, Elu, HardSigmoid, Gelu, Clip)
OPERATORS = UNARY
