"""Operators whose attributes depend on the lengths of open axes, such as Expand to [batch, 1, 16].

torch exports them wherever a network asks for `x.shape`. Their lengths are those of the graph's inputs, so they are
known as soon as these have arrived: the operator takes these inputs too, for their shapes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.lengths import evaluate, fold, names_in, subtract_dims
from mlhood.compiler.hir.operator import Operator, require, unsupported
from mlhood.compiler.hir.types import Dim, TensorType, broadcast, normalize_axis, product, quotient
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT, Movement
from mlhood.compiler.operators.cast import number_of
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

Lengths = tuple[Dim, ...]
_ONNX = {"+": "Add", "-": "Sub", "*": "Mul", "//": "Div", "max": "Max"}


@dataclass(frozen=True)
class Fill(Operator):
    """A tensor of equal elements in a shape with open axes.

    Attributes:
        shape: The length of each axis, as an expression of names.
        names: Each name in it, which input has that axis, and which axis of it that is.
        value: The elements.
        element: Their type.
    """

    shape: Lengths
    names: tuple[tuple[str, int, int], ...]
    value: float | int | bool
    element: str

    arity = (1, None)
    family = "other"
    from_onnx = unsupported("the import of ConstantOfShape makes it, for open axes")
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS

    def infer(self, *references: TensorType) -> TensorType:
        lengths = bind(self.names, [reference.shape for reference in references])
        return TensorType(self.element, tuple(evaluate(size, lengths) for size in self.shape))

    def evaluate(self, *references: np.ndarray) -> np.ndarray:
        lengths = bind(self.names, [reference.shape for reference in references])
        return np.full([int(evaluate(size, lengths)) for size in self.shape], self.value, self.element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        fill = helper.make_tensor("value", number_of(self.element), [1], [self.value])
        return writer.emit("ConstantOfShape", emit(writer, self.shape, self.names, inputs), name=name, value=fill)


class OpenMovement(Movement):
    """Base: elements of x are moved, by lengths that are expressions of names of axes."""

    arity = (2, None)
    from_onnx = unsupported("the import of the operator with the same name makes it, for open axes")
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL


@dataclass(frozen=True)
class ShapedMovement(OpenMovement):
    """Base: x, moved by `operator` with lengths that are expressions of names.

    Attributes:
        shape: The lengths, which the kind of movement defines.
        names: Each name in them, which of the inputs after x has that axis, and which axis of it that is.
    """

    shape: Lengths
    names: tuple[tuple[str, int, int], ...]

    def infer(self, x: TensorType, *references: TensorType) -> TensorType:
        return x.with_shape(self.moved(x.shape, self._lengths([reference.shape for reference in references])))

    def evaluate(self, x: np.ndarray, *references: np.ndarray) -> np.ndarray:
        lengths = self._lengths([reference.shape for reference in references])
        return self.move(x, [int(size) for size in lengths])

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        lengths = emit(writer, self.shape, self.names, inputs[1:])
        return writer.emit(self.name.removeprefix("Open"), inputs[0], lengths, name=name)

    def moved(self, shape: Lengths, lengths: Lengths) -> Lengths:
        """Return the shape of the result."""
        raise NotImplementedError

    def move(self, x: np.ndarray, lengths: list[int]) -> np.ndarray:
        """Return the result."""
        raise NotImplementedError

    def _lengths(self, shapes: Sequence[Sequence[Dim]]) -> Lengths:
        lengths = bind(self.names, shapes)
        return tuple(evaluate(size, lengths) for size in self.shape)


@dataclass(frozen=True)
class OpenExpand(ShapedMovement):
    """x, broadcast to a shape."""

    def moved(self, shape: Lengths, lengths: Lengths) -> Lengths:
        return broadcast(shape, lengths)

    def move(self, x: np.ndarray, lengths: list[int]) -> np.ndarray:
        return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(lengths)))


@dataclass(frozen=True)
class OpenTile(ShapedMovement):
    """x, repeated along each axis."""

    def moved(self, shape: Lengths, lengths: Lengths) -> Lengths:
        count = len(lengths)
        require(count == len(shape), "there must be a number of repeats for each axis", expected=len(shape), got=count)
        return tuple(product(pair) for pair in zip(shape, lengths, strict=True))

    def move(self, x: np.ndarray, lengths: list[int]) -> np.ndarray:
        return np.tile(x, lengths)


@dataclass(frozen=True)
class OpenReshape(ShapedMovement):
    """The elements of x in the same order; 0 copies a length, and one -1 takes what is left."""

    def moved(self, shape: Lengths, lengths: Lengths) -> Lengths:
        require(lengths.count(-1) <= 1, "at most one length can be -1", got=list(lengths))
        copies = [i for i, size in enumerate(lengths) if size == 0 and i < len(shape)]
        new = [shape[i] if i in copies else size for i, size in enumerate(lengths)]
        given = [size for size in new if size != -1]
        rest = quotient(shape, given)
        if all(isinstance(size, int) for size in (*shape, *given)):
            fits = rest is not None if -1 in new else product(given) == product(shape)
            require(fits, "the number of elements does not match the new shape", expected=list(shape), got=new)
        if -1 in new:
            new[new.index(-1)] = f"({product(shape)})//({product(given)})" if rest is None else rest
        return tuple(new)

    def move(self, x: np.ndarray, lengths: list[int]) -> np.ndarray:
        return x.reshape([x.shape[i] if size == 0 and i < x.ndim else size for i, size in enumerate(lengths)])


@dataclass(frozen=True)
class OpenSlice(OpenMovement):
    """x[start:stop] along one axis, with ends that are expressions of names.

    Attributes:
        ends: Start and stop; a negative one counts from the end.
        names: Each name in them, which of the inputs after x has that axis, and which axis of it that is.
        axis: The axis.
    """

    ends: Lengths
    names: tuple[tuple[str, int, int], ...]
    axis: int

    def infer(self, x: TensorType, *references: TensorType) -> TensorType:
        start, stop = self._bound([reference.shape for reference in references])
        axis = normalize_axis(self.axis, x.rank)
        size = x.shape[axis]
        if isinstance(start, int) and isinstance(stop, int) and isinstance(size, int):
            length: Dim = len(range(*slice(start, stop).indices(size)))
        else:
            length = _sliced(size, start, stop)
        return x.with_shape((*x.shape[:axis], length, *x.shape[axis + 1 :]))

    def evaluate(self, x: np.ndarray, *references: np.ndarray) -> np.ndarray:
        start, stop = self._bound([reference.shape for reference in references])
        return x[(*(slice(None),) * normalize_axis(self.axis, x.ndim), slice(int(start), int(stop)))]

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        ends = [emit(writer, (end,), self.names, inputs[1:]) for end in self.ends]
        return writer.emit("Slice", inputs[0], *ends, writer.integers((self.axis,)), name=name)

    def _bound(self, shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, Dim]:
        lengths = bind(self.names, shapes)
        start, stop = (evaluate(end, lengths) for end in self.ends)
        return start, stop


def _sliced(size: Dim, start: Dim, stop: Dim) -> Dim:
    """Return the length of a slice as an expression, or as a new name where there is none that is always right."""
    is_whole = start == 0 and (stop == size or (isinstance(stop, int) and stop >= 2**31 - 1))
    if is_whole:
        return size
    if start == 0 and isinstance(stop, str) and isinstance(size, int):
        return stop  # a table with a row for each position: the stop is within it, or what uses the result fails
    difference = subtract_dims(stop, start)
    return difference if difference is not None and stop == size else f"len(({size})[{start}:{stop}])"


def bind(names: Sequence[tuple[str, int, int]], shapes: Sequence[Sequence[Dim]]) -> dict[str, Dim]:
    """Return the length of each name."""
    fits = all(0 <= i < len(shapes) and 0 <= axis < len(shapes[i]) for _, i, axis in names)
    require(fits, "an input that gives the length of an axis is missing", got=[name for name, *_ in names])
    return {name: shapes[i][axis] for name, i, axis in names}


def references(graph: Graph, lengths: Sequence[Dim]) -> tuple[tuple[tuple[str, int, int], ...], list[Value]] | None:
    """Return where the names in some lengths are found: for each an input and its axis, and the inputs.

    Args:
        graph: The graph; its placeholders are searched first, then all values for the length as a whole.
        lengths: Expressions of names.
    """
    axes: dict[str, tuple[Value, int]] = {}
    for placeholder in graph.placeholders.values():
        for axis, size in enumerate(placeholder.type.shape):
            if isinstance(size, str):
                axes.setdefault(size, (placeholder, axis))
    names: dict[str, tuple[Value, int]] = {}
    for length in lengths:
        inner = names_in(length, list(axes))
        if inner is not None:
            names |= {name: axes[name] for name in inner}
            continue
        values = [value for value in graph.values() if length in value.type.shape]
        if not values:
            return None
        names[str(length)] = values[0], values[0].type.shape.index(length)
    inputs = list(dict.fromkeys(value for value, _ in names.values()))
    return tuple((name, inputs.index(value), axis) for name, (value, axis) in names.items()), inputs


def find(source: OnnxNode, lengths: Sequence[Dim]) -> tuple[tuple[tuple[str, int, int], ...], list[Value]]:
    """Return where the names in some lengths are found, see `references`.

    Raises:
        CompilerError: The lengths cannot be computed from shapes.
    """
    found = references(source.graph, lengths)
    if found is None:
        todo = "give the lengths of the open axes: compile(model, dims={...}), or --dim NAME=LENGTH"
        raise source.unsupported(f"the lengths {list(lengths)} cannot be computed from the inputs' shapes", todo)
    return found


def is_open(lengths: Sequence[Dim]) -> bool:
    """Return whether a name is among some lengths."""
    return any(isinstance(size, str) for size in lengths)


def emit(writer: OnnxWriter, lengths: Lengths, names: Sequence[tuple[str, int, int]], inputs: list[str]) -> str:
    """Add the ONNX nodes that compute some lengths from the shapes of tensors; return the name of the list."""
    leaves = {name: writer.emit("Shape", inputs[i], start=axis, end=axis + 1) for name, i, axis in names}

    def combine(operation: str, first: Any, second: Any) -> str:
        return writer.emit(_ONNX[operation], first, second)

    sizes = [fold(size, leaves, lambda number: writer.integers((number,)), combine) for size in lengths]
    return sizes[0] if len(sizes) == 1 else writer.emit("Concat", *sizes, axis=0)


OPERATORS = (Fill, OpenExpand, OpenTile, OpenReshape, OpenSlice)
