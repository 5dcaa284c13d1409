"""Operators that read or write single elements, or slices, at indices that are computed at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import Dim, may_be_equal
from mlhood.compiler.hir.operator import Operator, Range, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Shape, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import (
    NO_PRODUCTS,
    POSITIONAL,
    STAYS_FLOAT,
    Movement,
    export_directly,
    hull,
)
from mlhood.compiler.operators.onnx_node import OnnxNode

# How an update is combined with the element that is there; the method `at` counts every occurrence of an index.
REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
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
        CompilerError: An index is out of range.
    """
    indices = indices.astype(np.int64)
    valid = bool(((indices >= -size) & (indices < size)).all())
    require(valid, "an index is out of range", expected=f"-{size} to {size - 1}")
    return np.where(indices < 0, indices + size, indices)


def _require_within(x: TensorType, indices: TensorType, axis: int) -> None:
    require(x.rank == indices.rank, "the ranks differ", expected=x.rank, got=indices.rank)
    axes = enumerate(zip(x.shape, indices.shape, strict=True))
    fits = all(i == axis or isinstance(a, str) or isinstance(b, str) or b <= a for i, (a, b) in axes)
    require(fits, "the indices are longer than the input", expected=list(x.shape), got=list(indices.shape))


@dataclass(frozen=True)
class GatherElements(Movement):
    """y[i, j, ...] = x[indices[i, j, ...], j, ...], for axis 0; y has the shape of the indices."""

    axis: int = 0

    arity = (2, 2)
    onnx = ("GatherElements",)
    sink_transpose = POSITIONAL
    to_onnx = export_directly

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

    arity = (3, 3)
    family = "shape"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    macs = NO_PRODUCTS
    to_onnx = export_directly

    def _check(self, x: TensorType, indices: TensorType, updates: TensorType) -> None:
        reduction = self.attributes["reduction"]
        require_unquantized(x, updates)
        require_indices(indices)
        common_element(x, updates)
        known = ("none", *REDUCTIONS)
        require(reduction in known, "unknown reduction", expected=", ".join(known), got=reduction)

    def _write(self, x: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
        y, reduction = x.copy(), self.attributes["reduction"]
        if reduction == "none":
            y[index] = updates
        else:
            REDUCTIONS[reduction].at(y, index, updates)
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
        return self._write(x, tuple(np.moveaxis(indices, -1, 0)), updates)


@dataclass(frozen=True)
class ReverseSequence(Movement):
    """Each sequence of a batch with its first elements, as many as its length says, in reverse order."""

    batch_axis: int = 1
    time_axis: int = 0

    arity = (2, 2)
    onnx = ("ReverseSequence",)
    sink_transpose = POSITIONAL
    to_onnx = export_directly

    def infer(self, x: TensorType, lengths: TensorType) -> TensorType:
        require_indices(lengths)
        batch, time = normalize_axis(self.batch_axis, x.rank), normalize_axis(self.time_axis, x.rank)
        require(batch != time, "the axes of the batch and of time must differ", got=batch)
        require_equal("there must be a length for each sequence", (x.shape[batch],), lengths.shape)
        return x

    def evaluate(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        batch, time = self.batch_axis % x.ndim, self.time_axis % x.ndim
        size = x.shape[time]
        valid = bool(((lengths >= 0) & (lengths <= size)).all())
        require(valid, "a length is out of range", expected=f"0 to {size}")
        grid = list(np.ogrid[tuple(slice(n) for n in x.shape)])
        ends = lengths.reshape(-1, *(1,) * (x.ndim - 1 - batch))
        grid[time] = np.where(grid[time] < ends, ends - 1 - grid[time], grid[time])
        return x[tuple(grid)]


@dataclass(frozen=True)
class OneHot(Operator):
    """A new axis that holds values[1] at the index, values[0] elsewhere; everywhere, if the index is out of range.

    Inputs: indices (any number type; negative ones count from the end); values, of 2 elements. Output: of their type.

    Attributes:
        depth: Length of the new axis.
        axis: Its place in the result.
    """

    depth: Dim
    axis: int = -1

    arity = (2, 2)
    onnx = ("OneHot",)
    family = "shape"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    macs = NO_PRODUCTS

    def infer(self, indices: TensorType, values: TensorType) -> TensorType:
        require_unquantized(indices, values)
        require_equal("there must be two values", (2,), values.shape)
        require(isinstance(self.depth, str) or self.depth >= 0, "the depth cannot be negative", got=self.depth)
        axis = normalize_axis(self.axis, indices.rank + 1)
        return TensorType(values.element, (*indices.shape[:axis], self.depth, *indices.shape[axis:]))

    def evaluate(self, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        rank = indices.ndim + 1
        axis = self.axis % rank
        places = np.arange(self.depth).reshape(-1, *(1,) * (rank - 1 - axis))
        whole = np.expand_dims(indices.astype(np.int64), axis)
        return np.where((whole == places) | (whole + int(self.depth) == places), values[1], values[0])

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        element = writer.node.inputs[0].type.element  # runtimes have fewest combinations of different types
        is_known = isinstance(self.depth, int)
        depth = writer.constant(np.array(self.depth, element)) if is_known else writer.integers((self.depth,))
        return writer.emit("OneHot", inputs[0], depth, inputs[1], name=name, axis=self.axis)

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return inputs[1]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        depth = source.static(1).ravel().tolist() if source.is_constant(1) else source.dims(1)
        require(len(depth) == 1, "the depth must be one number", got=depth)
        number = depth[0] if isinstance(depth[0], str) else int(depth[0])
        return source.add(cls(number, source.attribute("axis", -1)), source.input(0), source.input(2))


OPERATORS = (GatherElements, ScatterElements, ScatterND, ReverseSequence, OneHot)
