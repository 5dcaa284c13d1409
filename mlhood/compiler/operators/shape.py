"""Operators that give the same elements another shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.lengths import Dim, divide_dim, product, quotient
from mlhood.compiler.hir.operator import Operator, Permutation, namespace, require
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import Movement, transposed_axes, without_axes
from mlhood.compiler.operators.dynamic import is_dynamic
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.reduction import reduced_shape


@dataclass(frozen=True)
class Reshape(Movement):
    """The same elements, in the same order, in another shape.

    Attributes:
        shape: The new length of each axis; 0 takes the input's at the same place, and one -1 takes what is left.
        allow_zero: Whether a 0 is an axis of no elements instead.
    """

    shape: tuple[Dim, ...]
    allow_zero: bool = False

    onnx = ("Reshape",)
    moves = True

    def infer(self, x: TensorType) -> TensorType:
        copies = [i for i, size in enumerate(self.shape) if size == 0 and not self.allow_zero]
        require(all(i < x.rank for i in copies), "there is no axis to copy", expected=f"{x.rank} axes", got=self.shape)
        valid = self.shape.count(-1) <= 1 and all(isinstance(size, str) or size >= -1 for size in self.shape)
        require(valid, "at most one length can be -1, and no other negative", got=self.shape)
        shape: list[Dim] = [x.shape[i] if i in copies else size for i, size in enumerate(self.shape)]
        given = [size for size in shape if size != -1]
        rest = quotient(x.shape, given)
        fits = rest is not None if -1 in shape else rest == 1 or product(given) == x.size
        fits = fits or is_dynamic((*x.shape, *given))  # if it does not, that is seen when it runs
        require(fits, "the number of elements does not match the new shape", expected=f"{x.size} elements", got=shape)
        if -1 in shape:
            shape[shape.index(-1)] = rest if rest is not None else divide_dim(x.size, product(given))
        return x.with_shape(shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        shape = [x.shape[i] if size == 0 and not self.allow_zero else size for i, size in enumerate(self.shape)]
        return x.reshape([int(size) for size in shape])

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        shape = writer.integers(self.shape)
        return writer.emit("Reshape", *inputs, shape, name=name, allowzero=self.allow_zero or None)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Take the shape as a constant, or as computed from the input's; a named axis is copied, or left open."""
        x = source.input(0)
        wanted = source.dims(1) if source.opset >= 5 else source.attribute("shape", ())
        if -1 in wanted and is_dynamic(wanted) and 0 not in wanted:
            rest = quotient(x.type.shape, [size for size in wanted if size != -1])
            wanted = tuple(rest if size == -1 and isinstance(rest, int) else size for size in wanted)
        copied = [i < x.type.rank and size == x.type.shape[i] for i, size in enumerate(wanted)]
        axes = zip(wanted, copied, strict=True)
        allow_zero = bool(source.attribute("allowzero", 0)) and 0 in wanted
        numbers = tuple(size if isinstance(size, int) else 0 if copy else -1 for size, copy in axes)
        if not allow_zero and numbers.count(-1) <= 1:
            return source.add(cls(numbers), x)
        return source.add(cls(wanted, allow_zero), x)


@dataclass(frozen=True)
class Flatten(Movement):
    """The axes before `axis` as one, those from it on as another."""

    axis: int = 1

    onnx = ("Flatten",)

    def infer(self, x: TensorType) -> TensorType:
        axis = self._axis(x.rank)
        return x.with_shape((product(x.shape[:axis]), product(x.shape[axis:])))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axis = self._axis(x.ndim)
        return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))

    def _axis(self, rank: int) -> int:
        return rank if self.axis == rank else normalize_axis(self.axis, rank)


@dataclass(frozen=True)
class Squeeze(Movement):
    """Without some axes that are one long."""

    axes: tuple[int, ...]

    onnx = ("Squeeze",)
    moves = True

    def infer(self, x: TensorType) -> TensorType:
        lengths = [x.shape[normalize_axis(axis, x.rank)] for axis in self.axes]
        require(all(size == 1 for size in lengths), "only axes of length 1 can be squeezed", got=lengths)
        return x.with_shape(reduced_shape(x.shape, self.axes, keep=False))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return namespace(x).squeeze(x, self.axes)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Squeeze", *inputs, writer.integers(self.axes), name=name)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        axes = transposed_axes(self.axes, permutation)
        return Squeeze(axes), without_axes(permutation, axes)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        axes = source.attribute_or_input("axes", 1)
        if axes is None and is_dynamic(x.type.shape):
            what = f"Squeeze without axes cannot tell whether a dynamic axis of {list(x.type.shape)} is one long"
            todo = "give its length: compile(model, dims={...}), or --dim NAME=LENGTH; or list the axes to squeeze"
            raise source.unsupported(what, todo)
        if axes is None:
            axes = tuple(i for i, size in enumerate(x.type.shape) if size == 1)
        return source.add(cls(axes), x)


@dataclass(frozen=True)
class Unsqueeze(Movement):
    """With new axes, one long, at the places that `axes` names in the result."""

    axes: tuple[int, ...]

    onnx = ("Unsqueeze",)
    moves = True

    def infer(self, x: TensorType) -> TensorType:
        rank = x.rank + len(self.axes)
        new = {normalize_axis(axis, rank) for axis in self.axes}
        require(len(new) == len(self.axes), "an axis is repeated", got=self.axes)
        old = iter(x.shape)
        return x.with_shape([1 if i in new else next(old) for i in range(rank)])

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return namespace(x).expand_dims(x, self.axes)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Unsqueeze", *inputs, writer.integers(self.axes), name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute_or_input("axes", 1) or ()), source.input(0))


OPERATORS = (Reshape, Flatten, Squeeze, Unsqueeze)
