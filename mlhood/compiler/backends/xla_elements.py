"""Less common elementwise operators and norms in JAX; see `xla_operators`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

Array = Any  # of JAX, or traced
Rule = Callable[..., Any]


def _shrink(operator: Any, types: Any, x: Array) -> Array:
    y = jnp.where(x < -operator.lambd, x + operator.bias, jnp.where(x > operator.lambd, x - operator.bias, 0))
    return y.astype(x.dtype)


def _celu(operator: Any, types: Any, x: Array) -> Array:
    return jnp.maximum(x, 0) + jnp.minimum(operator.alpha * jnp.expm1(x / operator.alpha), 0)


def _is_inf(operator: Any, types: Any, x: Array) -> Array:
    return (jnp.isneginf(x) & operator.detect_negative) | (jnp.isposinf(x) & operator.detect_positive)


def _bit_shift(operator: Any, types: Any, a: Array, b: Array) -> Array:
    return jnp.left_shift(a, b) if operator.direction == "LEFT" else jnp.right_shift(a, b)


def _lp_normalization(operator: Any, types: Any, x: Array) -> Array:
    norm = jnp.linalg.norm(x, operator.p, operator.axis, keepdims=True)
    return jnp.where(norm == 0, 0, x / norm)


def _plain(function: Callable[..., Array]) -> Rule:
    return lambda operator, types, *arrays: function(*arrays)


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Acos": jnp.arccos,
    "Acosh": jnp.arccosh,
    "Asin": jnp.arcsin,
    "Asinh": jnp.arcsinh,
    "Atan": jnp.arctan,
    "Atanh": jnp.arctanh,
    "Cosh": jnp.cosh,
    "Sinh": jnp.sinh,
    "Tan": jnp.tan,
    "IsNaN": jnp.isnan,
    "BitwiseAnd": jnp.bitwise_and,
    "BitwiseOr": jnp.bitwise_or,
    "BitwiseXor": jnp.bitwise_xor,
    "BitwiseNot": jnp.bitwise_not,
}
RULES: dict[str, Rule] = {
    **{name: _plain(function) for name, function in _FUNCTIONS.items()},
    "ThresholdedRelu": lambda operator, types, x: jnp.where(x > operator.alpha, x, 0),
    "Shrink": _shrink,
    "Celu": _celu,
    "IsInf": _is_inf,
    "BitShift": _bit_shift,
    "LpNormalization": _lp_normalization,
    "Det": _plain(jnp.linalg.det),
}
