"""Operators whose results depend on the shape of their input only, and ranges, whose length may depend on data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import Dim, range_length
from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Value
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


class Creation(Operator):
    """Base: the result depends on the shape of x, not on its elements."""


@dataclass(frozen=True)
class Shape(Creation):
    """The lengths of the axes of x from `start` to `stop`, int64."""

    start: int = 0
    stop: int | None = None

    onnx = ("Shape",)
    onnx_names = (("stop", "end"),)

    def infer(self, x: TensorType) -> TensorType:
        return TensorType("int64", (len(x.shape[self.start : self.stop]),))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.shape[self.start : self.stop], np.int64)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Shape", *inputs, name=name, start=self.start or None, end=self.stop)


@dataclass(frozen=True)
class Range(Creation):
    """y = start, start + delta, ... as long as it does not reach limit.

    Inputs: start, limit and delta, scalars of one type.

    Attributes:
        length: The length, or the name of the axis if it depends on data.
    """

    length: Dim = "range"

    onnx = ("Range",)

    def infer(self, start: TensorType, limit: TensorType, delta: TensorType) -> TensorType:
        require_unquantized(start, limit, delta)
        element = common_element(start, limit, delta)
        sizes = [type.size for type in (start, limit, delta)]
        scalars = all(size == 1 or isinstance(size, str) for size in sizes)
        require(scalars, "start, limit and delta must be scalars", got=f"{sizes} elements")
        return TensorType(element, (self.length,))

    def evaluate(self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
        first, step = start.reshape(()), delta.reshape(())
        return np.asarray(first + np.arange(_length(start, limit, delta)).astype(start.dtype) * step, start.dtype)

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        return writer.emit("Range", *inputs, name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Import a range of constants as a constant; else find what value of the graph has an axis of its length."""
        bounds = [source.input(i) for i in range(3)]
        if all(map(source.is_constant, range(3))):
            start, limit, delta = (source.static(i).astype(bounds[i].type.dtype) for i in range(3))
            source.spend(_length(start, limit, delta))
            return source.constant(cls().evaluate(start, limit, delta))
        for i in range(3):
            source.refuse_input(i)
        if bounds[0].type.is_float and (integers := _integers(source, bounds)):
            return source.add(Cast(bounds[0].type.element), source.call("Range", *integers))
        length = _dynamic_length(source, bounds)
        return source.add(cls(source.graph.unique_name(f"{source.name}.length") if length is None else length), *bounds)


def _length(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> int:
    first, last, step = (x.reshape(()).item() for x in (start, limit, delta))
    require(step != 0, "the step of a range cannot be 0")
    if start.dtype.kind == "f":
        count = np.ceil((np.float64(last) - np.float64(first)) / np.float64(step))
        require(bool(np.isfinite(count)), "the length of a range must be finite", got=f"{first}, {last}, {step}")
        return max(int(count), 0)
    return max(-((first - last) // step), 0)


def _integers(source: OnnxNode, bounds: list[Value]) -> list[Value] | None:
    """Return the int64 numbers that floating-point bounds were converted from; None if they are no integers."""
    found = []
    for bound in bounds:
        origin = bound.producer.inputs[0] if bound.producer and isinstance(bound.producer.operator, Cast) else None
        if isinstance(bound, Constant) and (bound.data == np.rint(bound.data)).all():
            found.append(source.constant(bound.data.astype(np.int64)))
        elif origin is not None and origin.type.element in ("int32", "int64"):
            found.append(origin if origin.type.element == "int64" else source.add(Cast("int64"), origin))
        else:
            return None
    return found


def _dynamic_length(source: OnnxNode, bounds: list[Value]) -> Dim | None:
    """Return the length of a range of integers as an expression; None if it depends on data."""
    known = [source.known_dims(i) for i in range(3)]
    if bounds[0].type.dtype.kind not in "iu" or any(dims is None or len(dims) != 1 for dims in known):
        return None
    start, limit, delta = (dims[0] for dims in known if dims is not None)
    return range_length(start, limit, delta)


OPERATORS = (Shape, Range)
