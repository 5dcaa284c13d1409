"""Elementwise questions about floating-point numbers, answered by bool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NOT_REAL, Elementwise, export_directly
from mlhood.compiler.operators.onnx_node import OnnxNode


class Predicate(Elementwise):
    """Base: whether a condition holds for each element: bool."""

    family = "arithmetic"
    quantization_rule = NOT_REAL
    value_range = NO_BOUNDS
    to_onnx = export_directly

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the operator requires floating-point elements", got=x.element)
        return TensorType("bool", x.shape)


class IsNaN(Predicate):
    """Whether x is not a number."""

    onnx = ("IsNaN",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.isnan(x)


@dataclass(frozen=True)
class IsInf(Predicate):
    """Whether x is infinite; of the signs that count."""

    detect_negative: bool = True
    detect_positive: bool = True

    onnx = ("IsInf",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        negative = (x == -np.inf) & self.detect_negative
        return negative | ((x == np.inf) & self.detect_positive)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        signs = (bool(source.attribute(f"detect_{sign}", 1)) for sign in ("negative", "positive"))
        return source.add(cls(*signs), source.input(0))


OPERATORS = (IsNaN, IsInf)
