"""Operators that treat each element alone: activations and other functions of one tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType


@dataclass(frozen=True)
class Relu(Operator):
    """y = max(x, 0)."""

    onnx = ("Relu",)

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, x.dtype.type(0))


OPERATORS = (Relu,)
