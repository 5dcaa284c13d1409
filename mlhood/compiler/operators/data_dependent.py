"""Operators whose results have as many elements as the data decide: the new axis has a name instead of a length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import Operator, as_tuple, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.hir.values import Constant, Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.movement import Gather
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.shape import Reshape


@dataclass(frozen=True)
class DataDependent(Operator):
    """Base: the length of an axis of the result depends on the elements of the inputs.

    Attributes:
        length: The name of that axis.
    """

    length: str

    family = "shape"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS

    def workspace(self, *types: TensorType | None) -> int:
        """The longest result has one slice for each element of the first input."""
        size = 0 if types[0] is None else types[0].size
        return (size if isinstance(size, int) else 0) * (1 if types[0] is None else max(types[0].rank, 1))


def add_or_evaluate(source: OnnxNode, operator: Operator, *inputs: Value | None) -> tuple[Value, ...]:
    """Add a node; constants instead, if all its inputs are constants: their lengths are known then."""
    arrays = [value.data if isinstance(value, Constant) else None for value in inputs]
    if any(array is None and value is not None for array, value in zip(arrays, inputs, strict=True)):
        return source.add_all(operator, *inputs)
    operator.infer(*(None if value is None else value.type for value in inputs))
    results = as_tuple(operator.evaluate(*arrays))
    source.spend(sum(array.size for array in results))
    return tuple(map(source.constant, results))


def _axis_name(source: OnnxNode) -> str:
    return f"{source.name}.length"[-100:]


@dataclass(frozen=True)
class NonZero(DataDependent):
    """The indices of the elements that are not zero, in order: int64 [rank, length]."""

    onnx = ("NonZero",)

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return TensorType("int64", (x.rank, self.length))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        indices = np.nonzero(x) if x.ndim else (np.zeros((0, int(x != 0))),)  # a number has no axes
        return np.array(indices, np.int64).reshape(x.ndim, -1 if x.ndim else int(x != 0))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("NonZero", *inputs, name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return add_or_evaluate(source, cls(_axis_name(source)), source.input(0))[0]


@dataclass(frozen=True)
class Compress(DataDependent):
    """The slices of x along `axis` where the condition holds; what the condition does not reach is left out."""

    axis: int

    arity = (2, 2)
    onnx = ("Compress",)

    def infer(self, x: TensorType, condition: TensorType) -> TensorType:
        require_unquantized(x)
        valid = condition.element == "bool" and condition.rank == 1
        require(valid, "the condition must be a list of bool", got=f"{condition.element}{list(condition.shape)}")
        axis = normalize_axis(self.axis, x.rank)
        return x.with_shape((*x.shape[:axis], self.length, *x.shape[axis + 1 :]))

    def evaluate(self, x: np.ndarray, condition: np.ndarray) -> np.ndarray:
        return np.compress(condition[: x.shape[self.axis]], x, self.axis)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Compress", *inputs, name=name, axis=self.axis)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Without an axis, of all elements in a row; a constant condition becomes a Gather."""
        x, condition, axis = source.input(0), source.input(1), source.attribute("axis", None)
        if axis is None:
            x, axis = source.add(Reshape((-1,)), x), 0
        size = x.type.shape[axis]
        if isinstance(condition, Constant) and isinstance(size, int) and condition.data.dtype == bool:
            places = np.flatnonzero(condition.data[:size])
            return source.add(Gather(axis), x, source.constant(places))
        return source.add(cls(_axis_name(source), axis), x, condition)


@dataclass(frozen=True)
class Unique(DataDependent):
    """The different elements of x, or slices along `axis`: them, and three lists of indices, int64.

    The lists are where each occurs first, which of them each slice of x is, and how often each occurs.

    Attributes:
        axis: Along which slices are compared; None for all elements in a row.
        ordered: Whether they are sorted; they are in the order of their first occurrence otherwise.
    """

    axis: int | None = None
    ordered: bool = True

    onnx = ("Unique",)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        require_unquantized(x)
        places = TensorType("int64", (self.length,))
        if self.axis is None:
            inverse = TensorType("int64", (x.size,))
            return TensorType(x.element, (self.length,)), places, inverse, places
        axis = normalize_axis(self.axis, x.rank)
        y = TensorType(x.element, (*x.shape[:axis], self.length, *x.shape[axis + 1 :]))
        return y, places, TensorType("int64", (x.shape[axis],)), places

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        options: Any = {"return_index": True, "return_inverse": True, "return_counts": True, "axis": self.axis}
        y, first, inverse, counts = np.unique(x, **options)
        inverse = inverse.reshape(-1)
        if not self.ordered:
            order = np.argsort(first)
            y, first, counts = np.take(y, order, self.axis or 0), first[order], counts[order]
            inverse = np.argsort(order)[inverse]
        return y, *(each.astype(np.int64) for each in (first, inverse, counts))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        names = [name, *(writer.name(value) for value in writer.node.outputs[1:])]
        return writer.emit_all("Unique", *inputs, names=names, axis=self.axis, sorted=self.ordered)[0]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> tuple[Value, ...]:
        operator = cls(_axis_name(source), source.attribute("axis", None), bool(source.attribute("sorted", 1)))
        return add_or_evaluate(source, operator, source.input(0))


@dataclass(frozen=True)
class NonMaxSuppression(DataDependent):
    """The boxes that remain, of each image and class, after those that overlap better ones are left out.

    Source: ONNX, operator NonMaxSuppression. Inputs: boxes [n, m, 4], scores [n, classes, m]; then numbers: how many
    boxes to keep of each class, from which intersection over union on boxes overlap, and above which score they count.
    Output: int64 [length, 3], the numbers of image, class and box.

    Attributes:
        center: Whether a box is x, y of the centre, width and height; it is y, x of two opposite corners otherwise.
    """

    center: bool = False

    arity = (2, 5)
    onnx = ("NonMaxSuppression",)

    def infer(self, boxes: TensorType, scores: TensorType, *numbers: TensorType | None) -> TensorType:
        valid = boxes.rank == 3 and scores.rank == 3 and boxes.is_float and boxes.shape[-1] in (4, str(boxes.shape[-1]))
        got = f"{list(boxes.shape)} and {list(scores.shape)}"
        require(valid, "boxes and scores have invalid shapes", expected="[n, m, 4] and [n, classes, m]", got=got)
        return TensorType("int64", (self.length, 3))

    def workspace(self, *types: TensorType | None) -> int:
        """The longest result has each box of each class; and a box is compared to all others."""
        scores = types[1].size if len(types) > 1 and types[1] is not None else 0
        return 3 * scores if isinstance(scores, int) else 0

    def evaluate(self, boxes: np.ndarray, scores: np.ndarray, *numbers: np.ndarray | None) -> np.ndarray:
        given = [None if number is None else number.reshape(-1)[0] for number in (*numbers, None, None, None)[:3]]
        most = 0 if given[0] is None else max(int(given[0]), 0)
        overlap = 0.0 if given[1] is None else float(given[1])
        least = -np.inf if given[2] is None else float(given[2])
        corners = self._corners(boxes)
        rows = [
            (image, kind, box)
            for image, kinds in enumerate(scores)
            for kind, values in enumerate(kinds)
            for box in _kept(corners[image], values, most, overlap, least)
        ]
        return np.array(rows, np.int64).reshape(-1, 3)

    def _corners(self, boxes: np.ndarray) -> np.ndarray:
        """Return the lowest and the highest corner of each box: [n, m, 2, 2]."""
        first, second = boxes[..., :2], boxes[..., 2:]
        if self.center:
            first, second = first - second / 2, first + second / 2
        return np.stack([np.minimum(first, second), np.maximum(first, second)], -2)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("NonMaxSuppression", *inputs, name=name, center_point_box=int(self.center))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        operator = cls(_axis_name(source), bool(source.attribute("center_point_box", 0)))
        return add_or_evaluate(source, operator, *source.inputs)[0]


def _kept(corners: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float) -> list[int]:
    """Return the boxes [m, 2, 2] to keep, best first."""
    order = np.argsort(-scores, kind="stable")
    candidates = order[scores[order] > least]
    areas = np.prod(corners[:, 1] - corners[:, 0], -1)
    kept: list[int] = []
    while len(candidates) and len(kept) < most:
        best, candidates = candidates[0], candidates[1:]
        kept.append(int(best))
        low = np.maximum(corners[best, 0], corners[candidates, 0])
        high = np.minimum(corners[best, 1], corners[candidates, 1])
        shared = np.prod(np.maximum(high - low, 0), -1)
        union = areas[best] + areas[candidates] - shared
        ratio = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        candidates = candidates[ratio <= overlap]
    return kept


OPERATORS = (NonZero, Compress, Unique, NonMaxSuppression)
