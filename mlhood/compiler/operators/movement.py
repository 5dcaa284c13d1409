"""Operators that permute, select, concatenate and repeat elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from mlhood.compiler.hir.lengths import Dim, add_dims, is_at_least, may_be_equal, product, slice_length, subtract_dims
from mlhood.compiler.hir.operator import Operator, Permutation, Range, common_element, namespace, require
from mlhood.compiler.hir.types import TensorType, broadcast, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import (
    Movement,
    hull,
    transposed_axes,
)
from mlhood.compiler.operators.dynamic import is_dynamic
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Transpose(Movement):
    """Axis i of y is axis permutation[i] of x."""

    permutation: tuple[int, ...]

    onnx = ("Transpose",)
    moves = True

    def infer(self, x: TensorType) -> TensorType:
        valid, order = sorted(self.permutation) == list(range(x.rank)), f"0 to {x.rank - 1} in any order"
        require(valid, "invalid permutation of the axes", expected=order, got=self.permutation)
        quantization = x.quantization
        if quantization is not None and quantization.axis is not None:
            quantization = replace(quantization, axis=self.permutation.index(quantization.axis))
        return TensorType(x.element, tuple(x.shape[i] for i in self.permutation), quantization)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.permutation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Transpose", *inputs, name=name, perm=self.permutation)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        return source.add(cls(source.attribute("perm", tuple(reversed(range(x.type.rank))))), x)


@dataclass(frozen=True)
class Concat(Movement):
    """The inputs, concatenated along `axis`."""

    axis: int

    arity = (1, None)
    onnx = ("Concat",)
    moves = True
    quantization_rule = "concatenation"

    def infer(self, *inputs: TensorType) -> TensorType:
        first = inputs[0]
        axis = normalize_axis(self.axis, first.rank)
        shape = list(first.shape)
        for x in inputs:
            equal = x.rank == first.rank and all(map(may_be_equal, _without(shape, axis), _without(x.shape, axis)))
            require(equal, "the inputs differ along other axes", expected=list(first.shape), got=list(x.shape))
            require(x.quantization == first.quantization, "the inputs have different quantisation parameters")
            shape = [a if isinstance(a, int) else b for a, b in zip(shape, x.shape, strict=True)]
        common_element(*inputs)
        shape[axis] = reduce(add_dims, (x.shape[axis] for x in inputs))
        return first.with_shape(shape)

    def evaluate(self, *inputs: np.ndarray) -> np.ndarray:
        return namespace(inputs[0]).concatenate(inputs, axis=self.axis)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return Concat(*transposed_axes([self.axis], permutation)), permutation

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return hull(*inputs)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("axis", 1)), *source.inputs)


def _without(shape: Sequence[Dim], axis: int) -> list[Dim]:
    return [*shape[:axis], *shape[axis + 1 :]]


@dataclass(frozen=True)
class Slice(Movement):
    """y = x[start:stop:step] along some axes; unlike in Python, a start out of range is clamped."""

    starts: tuple[Dim, ...]
    stops: tuple[Dim, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]

    onnx = ("Slice",)
    moves = True

    def infer(self, x: TensorType) -> TensorType:
        lengths = {len(self.starts), len(self.stops), len(self.axes), len(self.steps)}
        require(len(lengths) == 1, "starts, stops, axes and steps differ in length", got=sorted(lengths))
        require(0 not in self.steps, "a step cannot be 0")
        shape = list(x.shape)
        for axis, part in self._slices(x.rank).items():
            shape[axis] = _slice_length(shape[axis], part)
        return x.with_shape(shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        slices = [slice(None)] * x.ndim
        for axis, part in self._slices(x.ndim).items():
            indices = _indices(x.shape[axis], part)
            stop = indices.stop if indices.stop >= 0 else None
            step = min(max(indices.step, -x.shape[axis]), x.shape[axis])  # XLA overflows on larger ones
            slices[axis] = slice(indices.start, stop, step) if indices else slice(0)
        return x[tuple(slices)]

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        lists = map(writer.integers, (self.starts, self.stops, self.axes, self.steps))
        return writer.emit("Slice", *inputs, *lists, name=name)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return replace(self, axes=transposed_axes(self.axes, permutation)), permutation

    def _slices(self, rank: int) -> dict[int, slice]:
        slices = zip(self.axes, self.starts, self.stops, self.steps, strict=True)
        return {normalize_axis(axis, rank): slice(start, stop, step) for axis, start, stop, step in slices}

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        starts, stops = (
            source.dims(i) if source.has(i) else source.attribute(name, ()) for i, name in ((1, "starts"), (2, "ends"))
        )
        axes = source.attribute_or_input("axes", 3) or tuple(range(len(starts)))
        steps = source.attribute_or_input("steps", 4) or (1,) * len(starts)
        for i, axis, step in zip(range(len(stops)), axes, steps, strict=False):
            size = x.type.shape[normalize_axis(axis, x.type.rank)]
            if step > 0 and is_at_least(subtract_dims(stops[i], size), 0):
                stops = (*stops[:i], 2**63 - 1, *stops[i + 1 :])
        return source.add(cls(starts, stops, axes, steps), x)


def _indices(size: int, part: slice) -> range:
    """Return the indices of a slice: ONNX clamps start to [0, size], or to [0, size - 1] if the step is negative."""
    lowest, highest = (0, size) if part.step > 0 else (-1, size - 1)
    start, stop = (end + size if end < 0 else end for end in (part.start, part.stop))
    return range(min(max(start, 0), highest), min(max(stop, lowest), highest), part.step)


def _slice_length(size: Dim, part: slice) -> Dim:
    if is_dynamic((size, part.start, part.stop)):
        return slice_length(size, part.start, part.stop, part.step)
    return len(_indices(int(size), part))


@dataclass(frozen=True)
class Gather(Movement):
    """y = the slices of x at the given indices along `axis`; negative indices count from the end."""

    axis: int = 0

    onnx = ("Gather",)
    moves = True

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        axis = normalize_axis(self.axis, x.rank)
        require(indices.element in ("int32", "int64"), "indices must be int32 or int64", got=indices.element)
        return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        size = x.shape[self.axis]
        valid = indices.size == 0 or (-size <= indices.min() and indices.max() < size)
        require(valid, "an index is out of range", expected=f"-{size} to {size - 1}")
        return np.asarray(np.take(x, indices.astype(np.int64), axis=self.axis))


@dataclass(frozen=True)
class GatherND(Operator):
    """y[b..., i...] = x[b..., indices[b..., i..., 0], indices[b..., i..., 1], ...].

    Negative indices count from the end.

    Attributes:
        batch: Number of leading axes b that both inputs share.
    """

    batch: int = 0

    onnx = ("GatherND",)
    onnx_names = (("batch", "batch_dims"),)
    family = "shape"

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require(indices.element == "int64" and indices.rank >= 1, "indices must be int64", got=indices.element)
        depth = indices.shape[-1]
        fits = isinstance(depth, int) and 0 <= self.batch < min(x.rank, indices.rank)
        require(fits and 1 <= int(depth) <= x.rank - self.batch, "the indices are longer than the rank", got=depth)
        batch = x.shape[: self.batch], indices.shape[: self.batch]
        require(all(map(may_be_equal, *batch)), "the batch axes differ", expected=batch[0], got=batch[1])
        return x.with_shape((*indices.shape[:-1], *x.shape[self.batch + int(depth) :]))

    def evaluate(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        depth, rank = indices.shape[-1], indices.ndim - 1
        lengths = np.array(x.shape[self.batch : self.batch + depth])
        if isinstance(indices, np.ndarray):
            valid = bool(((indices >= -lengths) & (indices < lengths)).all())
            require(valid, "an index is out of range", expected=lengths)
        grid = np.ogrid[tuple(slice(size) for size in x.shape[: self.batch])] if self.batch else ()
        batch = [index.reshape(*index.shape, *(1,) * (rank - self.batch)) for index in grid]
        return namespace(x).asarray(x[(*batch, *namespace(x).moveaxis(indices, -1, 0))])


@dataclass(frozen=True)
class Expand(Movement):
    """x, broadcast to a shape."""

    shape: tuple[Dim, ...]

    onnx = ("Expand",)

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape(broadcast(x.shape, self.shape))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return namespace(x).broadcast_to(x, np.broadcast_shapes(x.shape, tuple(map(int, self.shape))))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Expand", *inputs, writer.integers(self.shape), name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.dims(1)), source.input(0))


@dataclass(frozen=True)
class Tile(Movement):
    """x, repeated along each axis."""

    repeats: tuple[Dim, ...]

    onnx = ("Tile",)

    def infer(self, x: TensorType) -> TensorType:
        count = len(self.repeats)
        require(count == x.rank, "there must be a number of repeats for each axis", expected=x.rank, got=count)
        return x.with_shape([product(pair) for pair in zip(x.shape, self.repeats, strict=True)])

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return namespace(x).tile(x, tuple(map(int, self.repeats)))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Tile", *inputs, writer.integers(self.repeats), name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.dims(1)), source.input(0))


OPERATORS = (Transpose, Concat, Slice, Gather, GatherND, Expand, Tile)
