"""Triangles of matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, Range, require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_PRODUCTS, POSITIONAL, STAYS_FLOAT, hull
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Trilu(Operator):
    """y = the upper or lower triangle of matrices x [..., N, M], 0 elsewhere.

    Inputs: x, and the diagonal, int64, or none if it is an attribute.

    Attributes:
        upper: Whether the elements on the diagonal and above stay, rather than on it and below.
        diagonal: Which diagonal: 0 is the main one, those above it are positive.
    """

    upper: bool = True
    diagonal: int = 0

    arity = (1, 2)
    onnx = ("Trilu",)
    family = "shape"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    macs = NO_PRODUCTS

    def infer(self, x: TensorType, diagonal: TensorType | None = None) -> TensorType:
        require_unquantized(x)
        require(x.rank >= 2, "the input must be a matrix, or a batch of them", got=list(x.shape))
        scalar = diagonal is None or diagonal.size == 1 or isinstance(diagonal.size, str)
        require(scalar, "the number of the diagonal must be a scalar", got=diagonal and list(diagonal.shape))
        return x

    def evaluate(self, x: np.ndarray, diagonal: np.ndarray | None = None) -> np.ndarray:
        k = self.diagonal if diagonal is None else int(diagonal.reshape(()))
        rows, columns = x.shape[-2:]
        k = min(max(k, -rows), columns)  # all is above or below the diagonals beyond
        return np.triu(x, k) if self.upper else np.tril(x, k)

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return hull(inputs[0], (0.0, 0.0))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        diagonal = inputs[1] if len(inputs) > 1 else writer.constant(np.array(self.diagonal, np.int64))
        return writer.emit("Trilu", inputs[0], diagonal, name=name, upper=self.upper)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        upper, x = bool(source.attribute("upper", 1)), source.input(0)
        if not source.has(1):
            return source.add(cls(upper), x)
        if source.is_constant(1):
            return source.add(cls(upper, source.integers(1)[0]), x)
        return source.add(cls(upper), x, source.input(1))


OPERATORS = (Trilu,)
