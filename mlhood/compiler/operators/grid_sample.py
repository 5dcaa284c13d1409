"""Sampling of a tensor at coordinates that are computed at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.indexing import require_equal
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
_CUBIC_A = -0.75
_LARGEST = 2.0**31  # coordinates beyond are outside of any tensor


@dataclass(frozen=True)
class GridSample(Operator):
    """y[n, c, i, j, ...] = x[n, c] at the coordinates grid[n, i, j, ...], which are x, y, ... from -1 to 1.

    Source: ONNX, operator GridSample; torch's grid_sample. Inputs: x [n, c, d1, ..., dr], grid [n, o1, ..., or, r].
    Output: [n, c, o1, ..., or].

    Attributes:
        mode: "linear", "nearest" or "cubic".
        padding: What is outside of x: "zeros", the "border", or its "reflection".
        align_corners: Whether -1 and 1 are the centres of the outermost elements, instead of their outer edges.
    """

    mode: str = "linear"
    padding: str = "zeros"
    align_corners: bool = False

    arity = (2, 2)
    onnx = ("GridSample",)
    family = "other"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS

    def infer(self, x: TensorType, grid: TensorType) -> TensorType:
        require_unquantized(x, grid)
        require(self.mode in MODES, "unknown mode", expected=", ".join(MODES), got=self.mode)
        require(self.padding in PADDINGS, "unknown padding mode", expected=", ".join(PADDINGS), got=self.padding)
        require(grid.is_float, "the grid must be floating-point", got=grid.element)
        require(x.is_float or self.mode == "nearest", "interpolation requires floating-point elements", got=x.element)
        require(x.rank >= 3 and grid.rank == x.rank, "the ranks differ", expected=x.rank, got=grid.rank)
        require_equal("the grid does not match the input", (x.shape[0], x.rank - 2), (grid.shape[0], grid.shape[-1]))
        return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    def evaluate(self, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
        sizes = x.shape[2:]
        shape = (*x.shape[:2], *grid.shape[1:-1])
        if 0 in sizes or 0 in shape:
            return np.zeros(shape, x.dtype)
        coordinates = [self._coordinate(grid[..., -1 - axis], size) for axis, size in enumerate(sizes)]
        if self.mode == "nearest":
            return self._pixels(x, [position.astype(np.int64) for position in coordinates])
        firsts = [np.floor(position) for position in coordinates]
        shares = [position - first for position, first in zip(coordinates, firsts, strict=True)]
        taps = (0, 1) if self.mode == "linear" else (-1, 0, 1, 2)
        y = np.zeros(shape, x.dtype)
        for steps in product(taps, repeat=len(sizes)):
            weights = (self._weight(np.abs(share - step)) for share, step in zip(shares, steps, strict=True))
            weight = math.prod(weights)
            places = [first.astype(np.int64) + step for first, step in zip(firsts, steps, strict=True)]
            y += (np.expand_dims(np.asarray(weight), 1) * self._pixels(x, places)).astype(x.dtype, copy=False)
        return y

    def _ends(self, size: int) -> tuple[float, float]:
        """Return the coordinates at which an axis is mirrored."""
        return (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)

    def _coordinate(self, position: np.ndarray, size: int) -> np.ndarray:
        """Return the coordinates on an axis of numbers from -1 to 1, within the axis unless zeros surround it."""
        half = position.dtype.type(2)
        scaled = (position + 1) / half * (size - 1) if self.align_corners else ((position + 1) * size - 1) / half
        scaled = np.nan_to_num(scaled, nan=-1.0).clip(-_LARGEST, _LARGEST)
        if self.mode == "cubic":  # each of the neighbours is looked for on its own, see `_pixels`
            return scaled
        if self.mode == "nearest":
            scaled = np.rint(scaled)
        if self.padding == "border":
            return scaled.clip(0, size - 1)
        return _reflected(scaled, *self._ends(size)) if self.padding == "reflection" else scaled

    def _pixels(self, x: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
        """Return the elements at whole coordinates [n, o1, ...]: [n, c, o1, ...]."""
        inside, indices = np.ones((), bool), []
        for place, size in zip(places, x.shape[2:], strict=True):
            inside = inside & (place >= 0) & (place < size)
            if self.padding == "reflection":
                place = _reflected(place, *self._ends(size)).astype(np.int64)
            indices.append(place.clip(0, size - 1))
        images = np.arange(x.shape[0]).reshape(-1, *(1,) * (x.ndim - 2))
        y = np.moveaxis(x[(images, slice(None), *indices)], -1, 1)
        return np.where(np.expand_dims(inside, 1), y, x.dtype.type(0)) if self.padding == "zeros" else y

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        """Return the weights of elements at these distances; see `Resize`."""
        if self.mode == "linear":
            return 1 - distance
        a = _CUBIC_A
        inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, inner, outer)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        mode = self.mode if writer.opset >= 20 or self.mode == "nearest" else f"bi{self.mode}"
        options = {"padding_mode": self.padding, "align_corners": self.align_corners}
        return writer.emit("GridSample", *inputs, name=name, mode=mode, **options)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        mode = source.attribute("mode", "linear")  # opset 16 calls them bilinear and bicubic
        padding, aligned = source.attribute("padding_mode", "zeros"), bool(source.attribute("align_corners", 0))
        return source.add(cls(mode.removeprefix("bi"), padding, aligned), *source.inputs)


def _reflected(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return coordinates, mirrored at both ends until they are between them."""
    length = high - low
    if length == 0:
        return np.full_like(x, low)
    distance = np.abs(x - low) % (2 * length)
    return low + np.minimum(distance, 2 * length - distance)


OPERATORS = (GridSample,)
