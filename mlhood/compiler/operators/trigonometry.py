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


def _define(name: str, function: Callable[[np.ndarray], Any], **members: Any) -> type[RealFunction]:
    doc = f"y = {name}(x)."
    return type(name, (RealFunction,), {"function": staticmethod(function), "onnx": (name,), "__doc__": doc, **members})


_TABLE: dict[str, Any] = {"quantization_rule": "table"}
OPERATORS = (
    _define("Acos", np.arccos),
    _define("Acosh", np.arccosh),
    _define("Asin", np.arcsin),
    _define("Asinh", np.arcsinh, **_TABLE),
    _define("Atan", np.arctan, **_TABLE),
    _define("Atanh", np.arctanh),
    _define("Cosh", np.cosh),
    _define("Sinh", np.sinh),
    _define("Tan", np.tan),
)
