"""Updates of a cache of keys or values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from mlhood.compiler.hir.operator import Operator, Range, common_element, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, normalize_axis
from mlhood.compiler.operators.base import NO_PRODUCTS, POSITIONAL, STAYS_FLOAT, hull
from mlhood.compiler.operators.indexing import require_equal, require_indices, wrapped
from mlhood.compiler.operators.onnx_writer import OnnxWriter

MODES = ("linear", "circular")


@dataclass(frozen=True)
class TensorScatter(Operator):
    """y = cache, with the update of each sample of the batch written from a place on; 0 if no places are given.

    Inputs: cache [batch, ..., steps, ...], update, which may have fewer steps, and places int64 [batch] or none.

    Attributes:
        axis: The axis of the steps.
        mode: "linear", or "circular": what is written past the end goes on at the start.
    """

    axis: int = -2
    mode: str = "linear"

    arity = (2, 3)
    onnx = ("TensorScatter",)
    family = "shape"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    macs = NO_PRODUCTS

    def infer(self, cache: TensorType, update: TensorType, places: TensorType | None = None) -> TensorType:
        require_unquantized(cache, update)
        common_element(cache, update)
        require(self.mode in MODES, "unknown mode", expected=", ".join(MODES), got=self.mode)
        require(cache.rank == update.rank, "the ranks differ", expected=cache.rank, got=update.rank)
        axis = normalize_axis(self.axis, cache.rank)
        require(axis > 0, "the first axis is that of the batch; steps need another one", got=self.axis)
        length, steps = cache.shape[axis], update.shape[axis]
        fits = isinstance(length, str) or isinstance(steps, str) or steps <= length
        require(fits, "the update has more steps than the cache", expected=length, got=steps)
        shape = (*update.shape[:axis], length, *update.shape[axis + 1 :])
        require_equal("the update does not match the cache", cache.shape, shape)
        if places is not None:
            require_indices(places)
            require_equal("there must be a place for each sample", cache.shape[:1], places.shape)
        return cache

    def evaluate(self, cache: np.ndarray, update: np.ndarray, places: np.ndarray | None = None) -> np.ndarray:
        axis, y = self.axis % cache.ndim, cache.copy()
        if update.size == 0:
            return y
        length, steps = cache.shape[axis], update.shape[axis]
        require(steps <= length, "the update has more steps than the cache", expected=length, got=steps)
        starts = np.zeros(len(cache), np.int64) if places is None else places
        indices = starts[:, None] + np.arange(steps)
        indices = indices % length if self.mode == "circular" else wrapped(indices, length)
        samples = np.arange(len(cache))[:, None]
        np.moveaxis(y, axis, 1)[samples, indices] = np.moveaxis(update, axis, 1)
        return y

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return hull(inputs[0], inputs[1])

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Export a ScatterElements, since the opsets that are written do not have the operator yet."""
        cache, update, *places = inputs
        rank = writer.node.outputs[0].type.rank
        axis = self.axis % rank
        zero, one = (writer.constant(np.array(number, np.int64)) for number in (0, 1))
        length, steps = (writer.emit("Shape", x, start=axis, end=axis + 1) for x in (cache, update))
        steps = writer.emit("Squeeze", steps)
        indices = writer.emit("Range", zero, steps, one)
        indices = writer.emit("Reshape", indices, writer.integers((-1, *(1,) * (rank - 1 - axis))))
        if places and places[0]:
            starts = writer.emit("Cast", places[0], to=TensorProto.INT64)
            starts = writer.emit("Reshape", starts, writer.integers((-1, *(1,) * (rank - 1))))
            indices = writer.emit("Add", starts, indices)
        if self.mode == "circular":
            indices = writer.emit("Mod", indices, length)
        indices = writer.emit("Expand", indices, writer.emit("Shape", update))
        return writer.emit("ScatterElements", cache, indices, update, name=name, axis=axis)


OPERATORS = (TensorScatter,)
