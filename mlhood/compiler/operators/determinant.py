"""Determinants of matrices."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT, export_directly


class Det(Operator):
    """y = the determinant of each matrix, which are the last two axes of x."""

    onnx = ("Det",)
    family = "other"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    to_onnx = export_directly

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        require(x.is_float, "the operator requires floating-point elements", got=x.element)
        sides = x.shape[-2:]
        square = len(sides) == 2 and (sides[0] == sides[1] or any(isinstance(side, str) for side in sides))
        require(square, "the matrices must be square", got=list(x.shape))
        return x.with_shape(x.shape[:-2])

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.det(x.astype(np.float32) if x.dtype == np.float16 else x), x.dtype)


OPERATORS = (Det,)
