"""Activations that set small numbers to zero or shrink them, and the continuously differentiable ELU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import unsupported
from mlhood.compiler.operators.elementwise import Slope, Unary

_JUMPS = unsupported("it jumps: a table of 256 entries would be too coarse there")


@dataclass(frozen=True)
class ThresholdedRelu(Slope):
    """y = x where x > alpha, 0 elsewhere."""

    alpha: float = 1.0

    onnx = ("ThresholdedRelu",)
    quantization_rule = _JUMPS

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > x.dtype.type(self.alpha), x, x.dtype.type(0))


@dataclass(frozen=True)
class Shrink(Slope):
    """y = x + bias where x < -lambd, x - bias where x > lambd, 0 elsewhere; of floats or integers."""

    bias: float = 0.0
    lambd: float = 0.5

    onnx = ("Shrink",)
    quantization_rule = _JUMPS
    infer = Unary.infer

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        real = x if x.dtype.kind == "f" else x.astype(np.float64)
        bias, limit = real.dtype.type(self.bias), real.dtype.type(self.lambd)
        return np.where(real < -limit, real + bias, np.where(real > limit, real - bias, 0)).astype(x.dtype)


@dataclass(frozen=True)
class Celu(Slope):
    """y = max(0, x) + min(0, alpha (exp(x / alpha) - 1)) (arXiv 1704.07483)."""

    alpha: float = 1.0

    onnx = ("Celu",)
    quantization_rule = "table"

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        zero, alpha = x.dtype.type(0), x.dtype.type(self.alpha)
        return np.maximum(x, zero) + np.minimum(alpha * np.expm1(x / alpha), zero)


OPERATORS = (ThresholdedRelu, Shrink, Celu)
