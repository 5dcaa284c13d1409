"""Selection of the largest or smallest elements along an axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mlhood.compiler.hir.operator import Operator, Permutation, Range, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import (
    NO_BOUNDS,
    NO_PRODUCTS,
    NOT_REAL,
    STAYS_FLOAT,
    real_along,
    transposed_axes,
)
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.errors import CompilerError


@dataclass(frozen=True)
class TopK(Operator):
    """The k largest or smallest elements along `axis`, in order, and their indices, int64; equals in order of index.

    Inputs: x, and k, int64, or none if it is an attribute.

    Attributes:
        k: How many elements, None for all; if that is an input, the name of the axis of the results.
        axis: Along which axis.
        largest: Whether the largest ones rather than the smallest.
    """

    k: int | str | None
    axis: int = -1
    largest: bool = True

    arity = (1, 2)
    onnx = ("TopK",)
    family = "pooling"
    quantization_rule = NOT_REAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS

    def infer(self, x: TensorType, k: TensorType | None = None) -> tuple[TensorType, TensorType]:
        require_unquantized(x)
        axis = normalize_axis(self.axis, x.rank)
        length = x.shape[axis]
        if isinstance(self.k, int) and isinstance(length, int):
            require(0 <= self.k <= length, "the axis has fewer elements than k", expected=f"0 to {length}", got=self.k)
        count = length if self.k is None else self.k
        shape: tuple[Dim, ...] = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return TensorType(x.element, shape), TensorType("int64", shape)

    def evaluate(self, x: np.ndarray, k: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        axis, length = self.axis % x.ndim, x.shape[self.axis]
        given = self.k if k is None else k.reshape(()).item()
        count = length if given is None else int(given)
        require(0 <= count <= length, "the axis has fewer elements than k", expected=f"0 to {length}", got=count)
        if self.largest:  # a stable sort of the mirrored elements, mirrored, has equals in the order of their index
            ascending = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
            order = length - 1 - np.flip(ascending, axis)
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        indices = np.take(order, np.arange(count), axis=axis).astype(np.int64)
        return np.take_along_axis(x, indices, axis), indices

    def workspace(self, *types: TensorType | None) -> int:
        return 0 if types[0] is None else int(types[0].size)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return replace(self, axis=transposed_axes((self.axis,), permutation)[0]), permutation

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        k = inputs[1] if len(inputs) > 1 else self._count_to_onnx(writer, *inputs)
        names = [name, writer.name(writer.node.outputs[1])]
        return writer.emit_all("TopK", inputs[0], k, names=names, axis=self.axis, largest=self.largest)[0]

    def _count_to_onnx(self, writer: OnnxWriter, x: str) -> str:
        if self.k is not None:
            return writer.integers((self.k,))
        axis = self.axis % writer.node.outputs[0].type.rank
        return writer.emit("Shape", x, start=axis, end=axis + 1)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        x, axis, largest = source.input(0), source.attribute("axis", -1), bool(source.attribute("largest", 1))
        if source.opset < 10:
            return source.add_all(cls(source.attribute("k", 0), axis, largest), x)
        if source.is_constant(1):
            numbers = source.integers(1)
            require(len(numbers) == 1, "k must be one number", got=numbers)
            return source.add_all(cls(numbers[0], axis, largest), x)
        source.refuse_input(1)
        dims = source.known_dims(1)
        if dims is not None:
            whole = dims[0] == x.type.shape[normalize_axis(axis, x.type.rank)]
            return source.add_all(cls(None if whole else dims[0], axis, largest), x)
        return source.add_all(cls(source.graph.unique_name(f"{source.name}.k"), axis, largest), x, source.input(1))


@dataclass(frozen=True)
class Hardmax(Operator):
    """y = 1 at the first of the largest elements over `axes`, 0 elsewhere.

    Attributes:
        axes: One axis, or all from one on, which opset 12 and older took as one.
    """

    axes: tuple[int, ...]

    onnx = ("Hardmax",)
    family = "activation"
    quantization_rule = STAYS_FLOAT
    macs = NO_PRODUCTS

    def infer(self, x: TensorType) -> TensorType:
        return real_along(x, self.axes)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axes = tuple(axis % x.ndim for axis in self.axes)
        order = (*(i for i in range(x.ndim) if i not in axes), *axes)
        moved = x.transpose(order)
        rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], np.prod([x.shape[i] for i in axes], dtype=int))
        if not rows.size:
            return np.zeros_like(x)
        ones = np.arange(rows.shape[-1]) == rows.argmax(-1)[..., None]
        return ones.astype(x.dtype).reshape(moved.shape).transpose(np.argsort(order))

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation] | None:
        moved = replace(self, axes=transposed_axes(self.axes, permutation))
        return (moved, permutation) if len(self.axes) == 1 else None  # the first of several depends on their order

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return (0.0, 1.0)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        if len(self.axes) != 1:
            raise CompilerError("ONNX has no such operator over several axes", where=writer.node.where, got=self.axes)
        return writer.emit("Hardmax", *inputs, name=name, axis=self.axes[0])

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        axis = normalize_axis(source.attribute("axis", -1 if source.opset >= 13 else 1), x.type.rank)
        return source.add(cls((axis,) if source.opset >= 13 else tuple(range(axis, x.type.rank))), x)


OPERATORS = (TopK, Hardmax)
