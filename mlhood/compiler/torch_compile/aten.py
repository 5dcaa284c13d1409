"""The table of ATen's operators: how each is written with nodes of ONNX.

A rule takes the `OnnxBuilder` and the operator's arguments in the order of its schema, left-out ones by their defaults:
tensors as `Tensor`, symbolic integers as numbers. It returns the name of the result, or a tuple of names for several.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable
from typing import Any

import torch

from mlhood.compiler.torch_compile.onnx_builder import NotTranslated, OnnxBuilder, Tensor, onnx_element

Rule = Callable[..., str | tuple[str | None, ...] | None]
RULES: dict[Any, Rule] = {}
aten = torch.ops.aten

# Arithmetic on lengths of axes, which are numbers when a graph is translated.
INTEGER_FUNCTIONS = {
    aten.sym_size.int,
    *(getattr(python_operator, name) for name in ("add", "sub", "mul", "floordiv", "mod", "neg")),
}


def rule(*overloads: Any) -> Callable[[Rule], Rule]:
    """Register a function as the rule of some operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(overloads, function))
        return function

    return register


def require(condition: bool, what: str) -> None:
    """Raise NotTranslated if a rule does not cover these arguments."""
    if not condition:
        raise NotTranslated(what)


def operand(b: OnnxBuilder, value: Any, dtype: torch.dtype) -> str:
    """Return the name of an operand, a tensor or a number, converted to an element type."""
    return b.cast(value, dtype) if isinstance(value, Tensor) else b.constant(value, dtype)


def require_floats(b: OnnxBuilder) -> None:
    """Raise NotTranslated if the result is not floating-point: torch refuses such arguments when it runs."""
    require(b.output.dtype.is_floating_point, f"of {b.output.dtype}")


def _unary(onnx_operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor) -> str:
        if b.output.dtype == torch.bool or onnx_operator not in ("Relu", "Neg", "Abs"):
            require_floats(b)
        return b.emit(onnx_operator, b.cast(x, b.output.dtype))

    return translate


_UNARY = "Relu Sigmoid Tanh Exp Log Sqrt Reciprocal Neg Abs Erf Mish Floor Ceil Round Sin Cos Tan Asin Acos Atan"
_UNARY += " Sinh Cosh Asinh Acosh Atanh"
RULES.update({getattr(aten, name.lower()).default: _unary(name) for name in _UNARY.split()})


@rule(aten.isnan.default)
def _is_nan(b: OnnxBuilder, x: Tensor) -> str:
    return b.emit("IsNaN", x.name)


@rule(aten.isinf.default)
def _is_inf(b: OnnxBuilder, x: Tensor) -> str:
    return b.emit("IsInf", x.name)


@rule(aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default)
def _identity(b: OnnxBuilder, x: Tensor, *_: Any) -> str:
    return b.emit("Identity", x.name)


@rule(aten.rsqrt.default)
def _rsqrt(b: OnnxBuilder, x: Tensor) -> str:
    return b.emit("Reciprocal", b.emit("Sqrt", b.cast(x, b.output.dtype)))


@rule(aten.softplus.default)
def _softplus(b: OnnxBuilder, x: Tensor, beta: float = 1, threshold: float = 20) -> str:
    require(x.dtype == torch.float32, "float64, in which the threshold can be seen")
    require(beta == 1 and threshold >= 20, "another slope")
    return b.emit("Softplus", x.name)


@rule(aten.sign.default)
def _sign(b: OnnxBuilder, x: Tensor) -> str:
    require(x.dtype != torch.bool, "bools")
    zero = b.constant(0, x.dtype)  # torch's sign of NaN is 0, that of ONNX is NaN
    above, below = (
        b.emit("Cast", b.emit(name, x.name, zero), to=onnx_element(x.dtype)) for name in ("Greater", "Less")
    )
    return b.emit("Sub", above, below)


@rule(aten.logical_not.default)
def _logical_not(b: OnnxBuilder, x: Tensor) -> str:
    return b.emit("Not", b.cast(x, torch.bool))


@rule(aten.remainder.Tensor, aten.remainder.Scalar)
def _remainder(b: OnnxBuilder, x: Any, y: Any) -> str:
    require(not (b.output.dtype.is_floating_point or b.output.dtype == torch.bool), "of reals")
    require(not isinstance(y, Tensor) and y != 0, "by a tensor, which may hold zeros")
    return b.emit("Mod", operand(b, x, b.output.dtype), operand(b, y, b.output.dtype))


@rule(aten.fmod.Scalar)
def _fmod(b: OnnxBuilder, x: Tensor, y: Any) -> str:
    require_floats(b)
    return b.emit("Mod", b.cast(x, b.output.dtype), operand(b, y, b.output.dtype), fmod=1)


@rule(aten.bitwise_not.default)
def _bitwise_not(b: OnnxBuilder, x: Tensor) -> str:
    require(x.dtype == torch.bool, "bits of integers")
    return b.emit("Not", x.name)


@rule(aten._to_copy.default)
def _to_copy(b: OnnxBuilder, x: Tensor, *_: Any) -> str:
    is_integer = not (b.output.dtype.is_floating_point or b.output.dtype == torch.bool)
    require(not (x.dtype.is_floating_point and is_integer), "reals to integers, which torch truncates by its own rule")
    return b.emit("Identity", b.cast(x, b.output.dtype))


def _is_bool(value: Any) -> bool:
    return value.dtype == torch.bool if isinstance(value, Tensor) else isinstance(value, bool)


def _arithmetic(onnx_operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Any, y: Any, alpha: Any = 1) -> str:
        dtype = b.output.dtype
        require(dtype != torch.bool and not isinstance(alpha, bool), "arithmetic on bools")
        require(onnx_operator != "Sub" or not any(map(_is_bool, (x, y))), "differences of bools")
        second = operand(b, y, dtype)
        if alpha != 1:
            second = b.emit("Mul", second, b.constant(alpha, dtype))
        return b.emit(onnx_operator, operand(b, x, dtype), second)

    return translate


for _name in ("Add", "Sub", "Mul", "Div"):
    _overloads = getattr(aten, _name.lower())
    RULES[_overloads.Tensor] = RULES[_overloads.Scalar] = _arithmetic(_name)
RULES.update({aten.maximum.default: _arithmetic("Max"), aten.minimum.default: _arithmetic("Min")})


@rule(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _power(b: OnnxBuilder, x: Any, y: Any) -> str:
    require_floats(b)
    if isinstance(x, Tensor) and not isinstance(y, Tensor):
        base = b.cast(x, b.output.dtype)
        if y == 2:
            return b.emit("Mul", base, base)
        if abs(y) == 0.5:  # torch's power of minus infinity is NaN, as its root is
            root = b.emit("Sqrt", base)
            return root if y > 0 else b.emit("Reciprocal", root)
    return b.emit("Pow", operand(b, x, b.output.dtype), operand(b, y, b.output.dtype))


def _comparison(onnx_operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, y: Any) -> str:
        other = torch.empty(y.shape, dtype=y.dtype, device="meta") if isinstance(y, Tensor) else y
        dtype = torch.result_type(torch.empty(x.shape, dtype=x.dtype, device="meta"), other)
        require(dtype != torch.bool, "comparisons of bools")
        return b.emit(onnx_operator, b.cast(x, dtype), operand(b, y, dtype))

    return translate


for _name, _onnx in {
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}.items():
    RULES[getattr(aten, _name).Tensor] = RULES[getattr(aten, _name).Scalar] = _comparison(_onnx)


@rule(aten.ne.Tensor, aten.ne.Scalar)
def _not_equal(b: OnnxBuilder, x: Tensor, y: Any) -> str:
    return b.emit("Not", str(_comparison("Equal")(b, x, y)))


def _logical(onnx_operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, y: Tensor) -> str:
        require(b.output.dtype == torch.bool and isinstance(y, Tensor), "bits of integers")
        return b.emit(onnx_operator, b.cast(x, torch.bool), b.cast(y, torch.bool))

    return translate


for _name, _onnx in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    RULES[getattr(aten, f"logical_{_name}").default] = _logical(_onnx)
    RULES[getattr(aten, f"bitwise_{_name}").Tensor] = _logical(_onnx)


@rule(aten.where.self)
def _where(b: OnnxBuilder, condition: Tensor, x: Tensor, y: Tensor) -> str:
    return b.emit("Where", condition.name, b.cast(x, b.output.dtype), b.cast(y, b.output.dtype))


@rule(aten.clamp.default, aten.hardtanh.default)
def _clamp(b: OnnxBuilder, x: Tensor, least: Any = None, most: Any = None) -> str:
    dtype = b.output.dtype
    require(least == least and most == most, "by NaN, which torch gives for every element")
    limits = ["" if limit is None else b.constant(limit, dtype) for limit in (least, most)]
    return b.emit("Clip", b.cast(x, dtype), *limits)


@rule(aten.clamp.Tensor)
def _clamp_by_tensors(b: OnnxBuilder, x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> str:
    result = b.cast(x, b.output.dtype)
    if least is not None:
        result = b.emit("Max", result, b.cast(least, b.output.dtype))
    return result if most is None else b.emit("Min", result, b.cast(most, b.output.dtype))


@rule(aten.gelu.default)
def _gelu(b: OnnxBuilder, x: Tensor, approximate: str = "none") -> str:
    require_floats(b)
    return b.emit("Gelu", x.name, approximate=approximate)


@rule(aten.leaky_relu.default)
def _leaky_relu(b: OnnxBuilder, x: Tensor, slope: float = 0.01) -> str:
    require_floats(b)
    return b.emit("LeakyRelu", x.name, alpha=float(slope))


@rule(aten.elu.default)
def _elu(b: OnnxBuilder, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> str:
    require_floats(b)
    require(input_scale == 1, "a scale before the ELU")
    if scale == 1:
        return b.emit("Elu", x.name, alpha=float(alpha))
    return b.emit("Selu", x.name, alpha=float(alpha), gamma=float(scale))
