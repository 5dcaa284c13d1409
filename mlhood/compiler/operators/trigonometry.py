"""Trigonometric and hyperbolic functions, and their inverses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.elementwise import Function


class RealFunction(Function):
    """Base: y = function(x) of floating-point numbers; NaN where it is not defined."""

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the operator requires floating-point elements", got=x.element)
        return x


def _define(name: str, function: Callable[[Any, np.ndarray], Any], **members: Any) -> type[RealFunction]:
    doc = f"y = {name}(x)."
    return type(name, (RealFunction,), {"function": staticmethod(function), "onnx": (name,), "__doc__": doc, **members})


_TABLE: dict[str, Any] = {"quantization_rule": "table"}
OPERATORS = (
    _define("Acos", lambda xp, x: xp.arccos(x)),
    _define("Acosh", lambda xp, x: xp.arccosh(x)),
    _define("Asin", lambda xp, x: xp.arcsin(x)),
    _define("Asinh", lambda xp, x: xp.arcsinh(x), **_TABLE),
    _define("Atan", lambda xp, x: xp.arctan(x), **_TABLE),
    _define("Atanh", lambda xp, x: xp.arctanh(x)),
    _define("Cosh", lambda xp, x: xp.cosh(x)),
    _define("Sinh", lambda xp, x: xp.sinh(x)),
    _define("Tan", lambda xp, x: xp.tan(x)),
)
