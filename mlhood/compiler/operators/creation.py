"""Operators that make tensors out of nothing but a shape, and ONNX operators that the graph spells with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import helper

from mlhood.compiler.hir.operator import Operator, need, plain, unsupported
from mlhood.compiler.hir.types import TensorType, normalized
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Add, Div
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, NOT_REAL, POSITIONAL
from mlhood.compiler.operators.cast import Identity, array_of, number_of
from mlhood.compiler.operators.movement import Slice
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


class Creation(Operator):
    """Base: the elements of the result do not depend on those of x, only on its shape."""

    quantization_rule = NOT_REAL
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    family = "other"


@dataclass(frozen=True)
class Splat(Creation):
    """A tensor of the shape of x, each element the same number."""

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
    """The lengths of x's axes from `start` to `stop`, as int64."""

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
    """How many elements x has, as int64."""

    onnx = ("Size",)

    def infer(self, x: TensorType) -> TensorType:
        plain(x)
        return TensorType("int64", ())

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.array(x.size, np.int64)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Size", *inputs, name=name)


def import_constant(source: OnnxNode) -> Value:
    """Constant: a tensor, or numbers, that stand in the node itself."""
    attribute = source.attribute
    tensor = attribute("value", None)
    if tensor is not None:
        return source.constant(array_of(tensor))
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        for key in (name, f"{name}s"):
            if attribute(key, None) is not None:
                return source.constant(np.array(attribute(key, None), dtype))
    raise source.refuse("only dense tensors of numbers are supported as constants")


def import_constant_of_shape(source: OnnxNode) -> Value:
    """ConstantOfShape: one number in a shape that must be known when compiling."""
    tensor = source.attribute("value", None)
    fill = np.zeros(1, np.float32) if tensor is None else array_of(tensor)
    need(fill.size == 1, "the attribute `value` must be one number", got=list(fill.shape))
    return source.constant(source.filled(source.integers(0), fill.reshape(())))


def import_dropout(source: OnnxNode) -> tuple[Value, ...]:
    """Dropout does nothing outside training; its mask, where the model reads it, is all true."""
    if source.has(2) and not (source.is_constant(2) and not source.static(2).any()):
        raise source.refuse("dropping elements at random is training", "export in evaluation mode")
    x = source.input(0)
    y = source.add(Identity(), x)
    if not source.wants(1):
        return (y,)
    mask = Splat(True, "bool") if source.opset >= 10 else Splat(1, x.type.element)
    return y, source.add(mask, x)


def import_split(source: OnnxNode) -> list[Value]:
    """Split becomes one Slice for each part."""
    x = source.input(0)
    axis = normalized(source.attribute("axis", 0), x.type.rank)
    sizes = source.attribute_or_input("split", 1) or _even_parts(source, x, axis)
    parts, length = len(source.outputs), x.type.shape[axis]
    need(len(sizes) == parts and min(sizes) >= 0, "each output needs a size", expected=parts, got=list(sizes[:20]))
    whole = isinstance(length, str) or sum(sizes) == length
    need(whole, "the sizes do not add up to the axis", expected=length, got=list(sizes[:20]))
    ends = np.cumsum(sizes).tolist()
    starts = [0, *ends[:-1]]
    return [source.add(Slice((start,), (end,), (axis,), (1,)), x) for start, end in zip(starts, ends, strict=True)]


def _even_parts(source: OnnxNode, x: Value, axis: int) -> list[int]:
    length, parts = x.type.shape[axis], source.attribute("num_outputs", len(source.outputs))
    need(
        parts == len(source.outputs),
        "num_outputs is not the number of outputs",
        expected=len(source.outputs),
        got=parts,
    )
    if isinstance(length, str):
        raise source.refuse(f"splitting needs the length of axis {length!r}", "import_model(..., dims={...})")
    size = -(-length // parts)
    return [min(size, max(length - i * size, 0)) for i in range(parts)]


def import_mean(source: OnnxNode) -> Value:
    """Mean: the sum of all inputs, divided by their number."""
    total = Add.from_onnx(source)
    count = source.constant(np.array(len(source.inputs), total.type.dtype))
    return source.add(Div(), total, count)


OPERATORS = (Splat, Shape, Size)

RULES = {
    "Constant": import_constant,
    "ConstantOfShape": import_constant_of_shape,
    "Dropout": import_dropout,
    "Mean": import_mean,
    "Split": import_split,
}
