"""Selection of the largest or smallest elements along an axis."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mlhood.compiler.hir.operator import Operator, Permutation, namespace, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import (
    NO_BOUNDS,
    NO_PRODUCTS,
    NOT_REAL,
    transposed_axes,
)
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


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
        xp, axis, length = namespace(x), self.axis % x.ndim, x.shape[self.axis]
        given = self.k if k is None else k.reshape(()).item()
        count = length if given is None else int(given)
        require(0 <= count <= length, "the axis has fewer elements than k", expected=f"0 to {length}", got=count)
        if self.largest:  # a stable sort of the mirrored elements, mirrored, has equals in the order of their index
            ascending = xp.argsort(xp.flip(x, axis), axis=axis, stable=True)
            order = length - 1 - xp.flip(ascending, axis)
        else:
            order = xp.argsort(x, axis=axis, stable=True)
        indices = xp.take(order, np.arange(count), axis=axis).astype(np.int64)
        return xp.take_along_axis(x, indices, axis), indices

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


OPERATORS = (TopK,)
