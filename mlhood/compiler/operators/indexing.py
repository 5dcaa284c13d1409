"""Operators that read or write elements or slices at indices that are computed at run time, and the largest ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import may_be_equal
from mlhood.compiler.hir.operator import (
    Operator,
    Range,
    common_element,
    namespace,
    require,
    require_unquantized,
)
from mlhood.compiler.hir.types import Dim, Shape, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import (
    Movement,
    hull,
)
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

# How an update is combined with the element that is there: the function whose method `at` counts every occurrence of an
# index, and the method of JAX.
REDUCTIONS: dict[str, tuple[np.ufunc, str]] = {
    "add": (np.add, "add"),
    "mul": (np.multiply, "multiply"),
    "max": (np.maximum, "max"),
    "min": (np.minimum, "min"),
}


def require_indices(type: TensorType) -> None:
    """Raise CompilerError unless a tensor has the elements of indices."""
    require(type.element in ("int32", "int64"), "indices must be int32 or int64", got=type.element)


def require_equal(what: str, first: Shape, second: Shape) -> None:
    """Raise CompilerError if two shapes differ; a dynamic axis may have any length."""
    equal = len(first) == len(second) and all(map(may_be_equal, first, second))
    require(equal, what, expected=list(first), got=list(second))


def wrapped(indices: np.ndarray, size: Any) -> np.ndarray:
    """Return indices of which negative ones counted from the end: int64.

    Args:
        indices: The indices.
        size: The length of the axis, or of the axis that each index of the last axis is on.

    Raises:
        CompilerError: An index is out of range; not when JAX traces.
    """
    indices = indices.astype(np.int64)
    if isinstance(indices, np.ndarray):
        valid = bool(((indices >= -size) & (indices < size)).all())
        require(valid, "an index is out of range", expected=f"-{size} to {size - 1}")
    return namespace(indices).where(indices < 0, indices + size, indices)


def _require_within(x: TensorType, indices: TensorType, axis: int) -> None:
    require(x.rank == indices.rank, "the ranks differ", expected=x.rank, got=indices.rank)
    axes = enumerate(zip(x.shape, indices.shape, strict=True))
    fits = all(i == axis or isinstance(a, str) or isinstance(b, str) or b <= a for i, (a, b) in axes)
    require(fits, "the indices are longer than the input", expected=list(x.shape), got=list(indices.shape))


@dataclass(frozen=True)
class GatherElements(Movement):
    """y[i, j, ...] = x[indices[i, j, ...], j, ...], for axis 0; y has the shape of the indices."""

    axis: int = 0

    onnx = ("GatherElements",)

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_indices(indices)
        _require_within(x, indices, normalize_axis(self.axis, x.rank))
        return x.with_shape(indices.shape)

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        indices = wrapped(indices, x.shape[self.axis])
        return x[along(indices, self.axis)]


def along(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Return an index for each axis: the given ones for `axis`, and their own position for the others."""
    grid = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    grid[axis] = indices
    return tuple(grid)


class ScatterOperator(Operator):
    """Base: y = x, with updates written at indices; those at equal indices are combined, or the last one stays.

    A subclass has the attribute `reduction`: "none", or a key of `REDUCTIONS`.
    """

    family = "shape"

    def _check(self, x: TensorType, indices: TensorType, updates: TensorType) -> None:
        reduction = self.attributes["reduction"]
        require_unquantized(x, updates)
        require_indices(indices)
        common_element(x, updates)
        known = ("none", *REDUCTIONS)
        require(reduction in known, "unknown reduction", expected=", ".join(known), got=reduction)

    def _write(self, x: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
        function, method = REDUCTIONS.get(self.attributes["reduction"], (None, "set"))
        if not isinstance(x, np.ndarray):
            return getattr(x.at[index], method)(updates)
        y = x.copy()
        if function is None:
            y[index] = updates
        else:
            function.at(y, index, updates)
        return y

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        return hull(inputs[0], inputs[2]) if self.attributes["reduction"] in ("none", "max", "min") else None


@dataclass(frozen=True)
class ScatterElements(ScatterOperator):
    """y[indices[i, j, ...], j, ...] = updates[i, j, ...], for axis 0."""

    axis: int = 0
    reduction: str = "none"

    onnx = ("ScatterElements", "Scatter")

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        self._check(x, indices, updates)
        _require_within(x, indices, normalize_axis(self.axis, x.rank))
        require_equal("there must be an update for each index", indices.shape, updates.shape)
        return x

    def evaluate(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        return self._write(x, along(wrapped(indices, x.shape[self.axis]), self.axis), updates)


@dataclass(frozen=True)
class ScatterND(ScatterOperator):
    """y[indices[i..., 0], indices[i..., 1], ...] = updates[i...], slices where the indices are fewer than the axes."""

    reduction: str = "none"

    onnx = ("ScatterND",)

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        self._check(x, indices, updates)
        depth = indices.shape[-1] if indices.rank else 0
        if isinstance(depth, str):  # the length of an index is known when it runs
            return x
        fits = 1 <= depth <= x.rank
        require(fits, "an index must name an element or a slice", expected=f"1 to {x.rank} numbers", got=depth)
        wanted = (*indices.shape[:-1], *x.shape[depth:])
        require_equal("the updates do not match the indices", wanted, updates.shape)
        return x

    def evaluate(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        indices = wrapped(indices, np.array(x.shape[: indices.shape[-1]]))
        return self._write(x, tuple(namespace(x).moveaxis(indices, -1, 0)), updates)


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

    onnx = ("TopK",)
    family = "pooling"

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


OPERATORS = (GatherElements, ScatterElements, ScatterND, TopK)
