"""Division by the norm along an axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mlhood.compiler.hir.operator import Operator, Permutation, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, STAYS_FLOAT, export_directly, transposed_axes


@dataclass(frozen=True)
class LpNormalization(Operator):
    """y = x / norm of x along `axis`; 0 where the norm is 0.

    Attributes:
        axis: Along which axis.
        p: 1 for the sum of |x|, 2 for the root of the sum of x^2.
    """

    axis: int = -1
    p: int = 2

    onnx = ("LpNormalization",)
    family = "normalization"
    quantization_rule = STAYS_FLOAT
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    to_onnx = export_directly

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the operator requires floating-point elements", got=x.element)
        require(self.p in (1, 2), "the norm is not supported", expected="1 or 2", got=self.p)
        normalize_axis(self.axis, x.rank)
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        powers = np.abs(x) if self.p == 1 else x * x
        total = powers.sum(self.axis, keepdims=True, dtype=x.dtype)
        norm = total if self.p == 1 else np.sqrt(total)
        return np.where(norm == 0, x.dtype.type(0), x / norm)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return replace(self, axis=transposed_axes([self.axis], permutation)[0]), permutation


OPERATORS = (LpNormalization,)
