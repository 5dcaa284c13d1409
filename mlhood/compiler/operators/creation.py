"""Operators whose results depend on the shape of their input only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import helper

from mlhood.compiler.hir.operator import Operator, require_unquantized, unsupported
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, NOT_REAL, POSITIONAL, export_directly
from mlhood.compiler.operators.cast import number_of
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


class Creation(Operator):
    """Base: the result depends on the shape of x, not on its elements."""

    quantization_rule = NOT_REAL
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    family = "other"


@dataclass(frozen=True)
class Splat(Creation):
    """A tensor with the shape of x and equal elements."""

    value: float | int | bool
    element: str

    from_onnx = unsupported("the import of Dropout makes it, for a mask")

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(self.element, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.full(x.shape, self.value, self.element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        fill = helper.make_tensor("value", number_of(self.element), [1], [self.value])
        return writer.emit("ConstantOfShape", writer.emit("Shape", *inputs), name=name, value=fill)


@dataclass(frozen=True)
class Shape(Creation):
    """The lengths of the axes of x from `start` to `stop`, int64."""

    start: int = 0
    stop: int | None = None

    onnx = ("Shape",)

    def infer(self, x: TensorType) -> TensorType:
        return TensorType("int64", (len(x.shape[self.start : self.stop]),))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.shape[self.start : self.stop], np.int64)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Shape", *inputs, name=name, start=self.start or None, end=self.stop)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("start", 0), source.attribute("end", None)), source.input(0))


class Size(Creation):
    """The number of elements of x, int64."""

    onnx = ("Size",)
    to_onnx = export_directly

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return TensorType("int64", ())

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.size, np.int64)


OPERATORS = (Splat, Shape, Size)
