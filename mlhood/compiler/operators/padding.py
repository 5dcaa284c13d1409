"""Padding: more elements around a tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import Dim, add_dims
from mlhood.compiler.hir.operator import Operator, Permutation, Range, namespace, require
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import hull
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Pad(Operator):
    """x with more elements before and behind each axis, or fewer where a number is negative.

    Attributes:
        pads: How many before each axis, then how many behind each.
        mode: "constant", "reflect", "edge" or "wrap".
        value: What to fill with, in mode "constant".
    """

    pads: tuple[Dim, ...]
    mode: str = "constant"
    value: float | int | bool = 0

    onnx = ("Pad",)
    family = "shape"
    quantization_rule = "padding"

    def infer(self, x: TensorType) -> TensorType:
        require(len(self.pads) == 2 * x.rank, "each axis needs two pads", expected=2 * x.rank, got=len(self.pads))
        require(self.mode in ("constant", "reflect", "edge", "wrap"), "unknown padding mode", got=self.mode)
        shape = [add_dims(size, *ends) for size, ends in zip(x.shape, self._ends, strict=True)]
        positive = all(isinstance(size, str) or size >= 0 for size in shape)
        require(positive, "the pads remove more elements than an axis has", got=shape)
        return x.with_shape(shape)

    @property
    def _ends(self) -> list[tuple[Any, Any]]:
        half = len(self.pads) // 2
        return list(zip(self.pads[:half], self.pads[half:], strict=True))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        ends = zip(x.shape, self._ends, strict=True)
        x = x[tuple(slice(max(-before, 0), size - max(-after, 0)) for size, (before, after) in ends)]
        widths = [(max(before, 0), max(after, 0)) for before, after in self._ends]
        if self.mode == "constant":
            return namespace(x).pad(x, widths, constant_values=x.dtype.type(self.value))
        return namespace(x).pad(x, widths, mode=self.mode)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        y = writer.node.outputs[0].type
        fill = np.array(self.value, y.dtype)
        if y.quantization is not None:
            fill = np.array(y.quantization.scale[0] * (self.value - y.quantization.offset[0]), np.float32)
        more = [writer.integers(self.pads), writer.constant(fill)]
        return writer.emit("Pad", *inputs, *more, name=name, mode=self.mode)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        moved = [self._ends[permutation.index(axis)] for axis in range(len(permutation))]
        befores, afters = zip(*moved, strict=True)
        return replace(self, pads=(*befores, *afters)), permutation

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return hull(*inputs, (self.value, self.value)) if self.mode == "constant" else inputs[0]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        given = source.dims(1) if source.has(1) else source.attribute("pads", ())
        rank = x.type.rank
        axes = [normalize_axis(axis, rank) for axis in source.integers(3)] if source.has(3) else list(range(rank))
        require(len(given) == 2 * len(axes), "each axis needs two pads", expected=2 * len(axes), got=len(given))
        pads: list[Any] = [0] * 2 * rank
        for i, axis in enumerate(axes):
            pads[axis], pads[rank + axis] = given[i], given[len(axes) + i]
        fill = source.static(2) if source.has(2) else np.asarray(source.attribute("value", 0))
        require(fill.size == 1, "the padding value must be one number", got=list(fill.shape))
        return source.add(cls(tuple(pads), source.attribute("mode", "constant"), fill.item()), x)


OPERATORS = (Pad,)
