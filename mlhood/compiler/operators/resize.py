"""Resizing: a tensor sampled on a finer or coarser grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType, normalize_axis, scale_dim
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, NOT_EXPORTED, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.onnx_node import OnnxNode

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
ROUNDING = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Resize(Operator):
    """y[i, j, ...] = x sampled at the coordinates of (i, j, ...): the nearest element, or a mean of its neighbours.

    Source: ONNX, operator Resize; the axes are independent of each other, so each is one product with a matrix.

    Attributes:
        scales: Factor of each axis' length; 1 leaves it unchanged.
        sizes: New length of each axis, 0 where `scales` determines it: floor(length scale). Empty if it does for all.
        mode: "nearest", "linear" or "cubic".
        coordinates: How an index of y becomes a coordinate of x: ONNX's `coordinate_transformation_mode`.
        rounding: Which element is the nearest: ONNX's `nearest_mode`.
        cubic_a: Parameter of the cubic convolution kernel.
        exclude_outside: Whether elements outside of x have weight 0; otherwise the edge is repeated.
    """

    scales: tuple[float, ...]
    sizes: tuple[int, ...] = ()
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False

    onnx = ("Resize", "Upsample")
    family = "other"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    to_onnx = NOT_EXPORTED

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        lengths = len(self.scales), len(self.sizes) or x.rank
        require(lengths == (x.rank, x.rank), "each axis needs a scale or a size", expected=x.rank, got=lengths)
        positive = all(math.isfinite(scale) and scale > 0 for scale in self.scales)
        require(positive and min(self.sizes, default=0) >= 0, "scales and sizes must be positive", got=self.scales)
        require(self.mode in MODES, "unknown resize mode", expected=", ".join(MODES), got=self.mode)
        known, names = self.coordinates in COORDINATES, ", ".join(COORDINATES)
        require(known, "these coordinates are not supported", expected=names, got=self.coordinates)
        require(self.rounding in ROUNDING, "unknown rounding mode", expected=", ".join(ROUNDING), got=self.rounding)
        require(x.is_float or self.mode == "nearest", "interpolation requires floating-point elements", got=x.element)
        return x.with_shape([self._length(axis, size) for axis, size in enumerate(x.shape)])

    def _length(self, axis: int, size: Dim) -> Dim:
        return self.sizes[axis] if self.sizes and self.sizes[axis] else scale_dim(size, self.scales[axis])

    def workspace(self, *types: TensorType | None) -> int:
        """The largest intermediate result, as axes are resized one after the other."""
        shape = [int(size) for size in types[0].shape] if types[0] is not None else []
        largest = 0
        for axis, size in enumerate(shape):
            shape[axis] = int(self._length(axis, size))
            largest = max(largest, math.prod(shape))
        return largest

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        element = x.dtype
        for axis, size in enumerate(x.shape):
            length = int(self._length(axis, size))
            if length == size and self.scales[axis] == 1:
                continue
            require(size > 0, "an empty axis cannot be resized", got=list(x.shape))
            coordinates = self._coordinates(axis, size, length)
            if self.mode == "nearest":
                nearest = ROUNDING[self.rounding](coordinates).clip(0, size - 1)
                x = np.take(x, nearest.astype(np.int64), axis=axis)
            else:
                x = self._interpolate(x, axis, coordinates)
        return x.astype(element, copy=False)

    def _coordinates(self, axis: int, size: int, length: int) -> np.ndarray:
        """Return the coordinates of the new axis' elements on the old axis: float64 [length]."""
        given = not (self.sizes and self.sizes[axis])
        scale = self.scales[axis] if given else length / size
        index = np.arange(length, dtype=np.float64)
        if self.coordinates == "align_corners":
            return index * (size - 1) / (scale * size - 1) if scale * size > 1 else index * 0
        if self.coordinates == "asymmetric":
            return index / scale
        if self.coordinates == "tf_half_pixel_for_nn":
            return (index + 0.5) / scale
        if self.coordinates == "pytorch_half_pixel" and length == 1:
            return index
        coordinates = (index + 0.5) / scale - 0.5
        if self.coordinates == "half_pixel_symmetric":
            coordinates += size / 2 * (1 - length / (scale * size))
        return coordinates

    def _interpolate(self, x: np.ndarray, axis: int, coordinates: np.ndarray) -> np.ndarray:
        """Return x along one axis as weighted sums of the two or four neighbours of each coordinate."""
        first = np.floor(coordinates).astype(np.int64)
        taps = (0, 1) if self.mode == "linear" else (-1, 0, 1, 2)
        weights = np.stack([self._weight(np.abs(coordinates - first - tap)) for tap in taps])
        indices = np.stack([first + tap for tap in taps])
        if self.exclude_outside:
            weights = np.where((indices >= 0) & (indices < x.shape[axis]), weights, 0)
            weights /= weights.sum(axis=0)
        indices = indices.clip(0, x.shape[axis] - 1)
        along = [-1 if i == axis else 1 for i in range(x.ndim)]
        terms = zip(weights.astype(x.dtype), indices, strict=True)
        return np.asarray(sum(weight.reshape(along) * np.take(x, index, axis=axis) for weight, index in terms))

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        """Return the weights of elements at these distances."""
        if self.mode == "linear":
            return 1 - distance
        a = self.cubic_a
        inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, inner, outer)

    @classmethod
    def _import_upsample(cls, source: OnnxNode) -> Value:
        """Upsample, and Resize of opset 10: scales only, from the corner; rounded down, or up where it shrinks."""
        x = source.input(0)
        given = source.static(1) if source.has(1) else np.asarray(source.attribute("scales", ()))
        mode, scales = source.attribute("mode", "nearest"), _numbers(given)
        shrinking = tuple(min(scale, 1.0) for scale in scales)
        if mode == "nearest" and shrinking != (1.0,) * len(scales):
            x = source.add(cls(shrinking, (), mode, "asymmetric", "ceil"), x)
            scales = tuple(max(scale, 1.0) for scale in scales)
        return source.add(cls(scales, (), mode, "asymmetric", "floor"), x)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Take scales or sizes, of all axes or of some."""
        if source.op_type == "Upsample" or source.opset < 11:
            return cls._import_upsample(source)
        if source.attribute("antialias", 0):
            raise source.unsupported("antialias = 1 is not supported")
        x = source.input(0)
        axes = [normalize_axis(axis, x.type.rank) for axis in source.attribute("axes", tuple(range(x.type.rank)))]
        scales, sizes = [1.0] * x.type.rank, [0] * x.type.rank
        if source.has(3) and source.dims(3):
            if (policy := source.attribute("keep_aspect_ratio_policy", "stretch")) != "stretch":
                what = f"keep_aspect_ratio_policy = {policy!r} is not supported"
                raise source.unsupported(what, "give the sizes that result")
            given = source.dims(3)
            require(len(given) == len(axes), "each axis needs a size", expected=len(axes), got=len(given))
            for axis, size in zip(axes, given, strict=True):
                sizes[axis] = _size(source, x.type.shape[axis], size)
        else:
            numbers = _numbers(source.static(2))
            require(len(numbers) == len(axes), "each axis needs a scale", expected=len(axes), got=len(numbers))
            for axis, scale in zip(axes, numbers, strict=True):
                scales[axis] = scale
        operator = cls(
            tuple(scales),
            tuple(sizes) if any(sizes) else (),
            source.attribute("mode", "nearest"),
            source.attribute("coordinate_transformation_mode", "half_pixel"),
            source.attribute("nearest_mode", "round_prefer_floor"),
            source.attribute("cubic_coeff_a", -0.75),
            bool(source.attribute("exclude_outside", 0)),
        )
        return source.add(operator, x)


def _numbers(scales: np.ndarray) -> tuple[float, ...]:
    require(scales.dtype.kind == "f" and scales.ndim == 1, "scales must be a list of numbers", got=list(scales.shape))
    return tuple(map(float, scales))


def _size(source: OnnxNode, old: Dim, new: Dim) -> int:
    """Return the new size, 0 for a dynamic axis that does not change."""
    require(isinstance(new, str) or new > 0, "sizes must be positive", got=new)
    if new == old:
        return 0
    if isinstance(new, int):
        return new
    todo = f"import_model(..., dims={{{new!r}: n}})"
    raise source.unsupported(f"resizing to the length {new!r} needs its number", todo)


OPERATORS = (Resize,)
