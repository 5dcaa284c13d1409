"""Resizing: a tensor sampled on a finer or coarser grid."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.lengths import scale_dim
from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import Dim, Shape, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_operator import add_onnx_operator
from mlhood.compiler.operators.onnx_writer import OnnxWriter

MODES = ("nearest", "linear", "cubic")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROUNDING = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Resize(Operator):
    """y[i, j, ...] = x sampled at the coordinates of (i, j, ...): the nearest element, or a mean of its neighbours.

    Source: ONNX, operator Resize; the axes are independent of each other, so each is one product with a matrix. What
    frameworks do not export of it, such as regions and antialiasing, is left to ONNX's reference implementation.

    Attributes:
        scales: Factor of each axis' length; 1 leaves it unchanged.
        sizes: New length of each axis, 0 where `scales` determines it: floor(length scale). Empty if it does for all.
        mode: "nearest", "linear" or "cubic".
        coordinates: How an index of y becomes a coordinate of x: ONNX's `coordinate_transformation_mode`.
        rounding: Which element is the nearest: ONNX's `nearest_mode`.
        cubic_a: Parameter of the cubic convolution kernel.
    """

    scales: tuple[float, ...]
    sizes: tuple[Dim, ...] = ()
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75

    onnx = ("Resize", "Upsample")

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        lengths = len(self.scales), len(self.sizes) or x.rank
        require(lengths == (x.rank, x.rank), "each axis needs a scale or a size", expected=x.rank, got=lengths)
        sizes = self.sizes or (0,) * x.rank
        known = [(scale, size) for scale, size in zip(self.scales, sizes, strict=True) if isinstance(size, int)]
        valid = all(size > 0 or (size == 0 and math.isfinite(scale) and scale > 0) for scale, size in known)
        require(valid, "scales and sizes must be positive", got=f"{self.scales} and {self.sizes}")
        for given, names in ((self.mode, MODES), (self.coordinates, COORDINATES), (self.rounding, tuple(ROUNDING))):
            require(given in names, "unknown mode of resizing", expected=", ".join(names), got=given)
        require(x.is_float or self.mode == "nearest", "interpolation requires floating-point elements", got=x.element)
        return x.with_shape(self._lengths(x.shape))

    def _lengths(self, shape: Shape) -> list[Dim]:
        """Return the new lengths of the axes."""
        sizes = self.sizes or (0,) * len(shape)
        axes = zip(shape, self.scales, sizes, strict=True)
        return [size or scale_dim(old, scale) for old, scale, size in axes]

    def workspace(self, *types: TensorType | None) -> int:
        """The largest intermediate result, as axes are resized one after the other."""
        shape = [int(size) for size in types[0].shape] if types[0] is not None else []
        largest = 0
        for axis, length in enumerate(self._lengths(tuple(shape))):
            shape[axis] = int(length)
            largest = max(largest, math.prod(shape))
        return largest

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        element, lengths = x.dtype, [int(length) for length in self._lengths(x.shape)]
        if 0 in lengths:
            return np.zeros(lengths, element)
        if lengths == list(x.shape):
            return x  # whatever the scales, in ONNX Runtime
        for axis, (indices, weights) in self.neighbours(x.shape).items():
            along = [-1 if i == axis else 1 for i in range(x.ndim)]
            if self.mode == "nearest":
                x = np.take(x, indices[0], axis=axis)
                continue
            terms = zip(weights.astype(element), indices, strict=True)
            x = np.asarray(sum(weight.reshape(along) * np.take(x, index, axis=axis) for weight, index in terms))
        return x

    def neighbours(self, shape: Shape) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return for each axis that changes, which elements of x a new one is the weighted sum of.

        Returns:
            The index, int64 [taps, length], and the weight, float64 [taps, length], of each of the elements.
        """
        changed = {}
        sizes = self.sizes or (0,) * len(shape)
        axes = zip(shape, self._lengths(shape), self.scales, sizes, strict=True)
        for axis, (old, new, scale, given) in enumerate(axes):
            size, length = int(old), int(new)
            factor = length / size if given and size else scale
            if length == size and factor == 1:
                continue
            require(size > 0, "an empty axis cannot be resized", got=list(shape))
            changed[axis] = self._taps(self._coordinates(size, length, factor), size)
        return changed

    def _coordinates(self, size: int, length: int, factor: float) -> np.ndarray:
        """Return the coordinates of the new axis' elements on the old axis: float64 [length].

        They are rounded to float32, as in ONNX Runtime: it decides which of two elements is the nearest.
        """
        index, scale, half = np.arange(length, dtype=np.float32), np.float32(factor), np.float32(0.5)
        if self.coordinates == "align_corners":  # by the length as it is, not length * scale, as in torch
            index = index * np.float32(size - 1) / np.float32(max(length - 1, 1))
        elif self.coordinates == "asymmetric":
            index = index / scale
        elif self.coordinates != "pytorch_half_pixel" or length > 1:
            index = (index + half) / scale - half
        return index.astype(np.float64)

    def _taps(self, coordinates: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices and weights of the elements around each coordinate; see `neighbours`."""
        if self.mode == "nearest":
            nearest = ROUNDING[self.rounding](coordinates).clip(0, size - 1).astype(np.int64)
            return nearest[None], np.ones((1, len(nearest)))
        first, reach = np.floor(coordinates).astype(np.int64), 1 if self.mode == "linear" else 2
        indices = np.stack([first + tap for tap in range(1 - reach, reach + 1)])
        return indices.clip(0, size - 1), self._weight(np.abs(coordinates - indices))

    def _weight(self, distance: np.ndarray) -> np.ndarray:
        """Return the weights of elements at these distances."""
        if self.mode == "linear":
            return np.maximum(1 - distance, 0)
        a = self.cubic_a
        inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, inner, np.where(distance < 2, outer, 0))

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        axes = [i for i, size in enumerate(self.sizes) if size]
        scales = "" if axes else writer.constant(np.array(self.scales, np.float32))
        sizes = writer.integers(tuple(self.sizes[i] for i in axes)) if axes else ""
        return writer.emit(
            *("Resize", *inputs, "", scales, sizes),
            name=name,
            axes=tuple(axes) or None,
            mode=self.mode,
            coordinate_transformation_mode=self.coordinates,
            nearest_mode=self.rounding,
            cubic_coeff_a=self.cubic_a,
        )

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
        coordinates = source.attribute("coordinate_transformation_mode", "half_pixel")
        policy = source.attribute("keep_aspect_ratio_policy", "stretch")
        others = source.attribute("antialias", 0) or source.attribute("exclude_outside", 0) or policy != "stretch"
        if others or coordinates not in COORDINATES:
            return add_onnx_operator(source, source.inputs, source.attributes)[0]
        x = source.input(0)
        axes = [normalize_axis(axis, x.type.rank) for axis in source.attribute("axes", tuple(range(x.type.rank)))]
        scales: list[float] = [1.0] * x.type.rank
        sizes: list[Dim] = [0] * x.type.rank
        if source.has(3) and source.dims(3):
            given = source.dims(3)
            require(len(given) == len(axes), "each axis needs a size", expected=len(axes), got=len(given))
            for axis, size in zip(axes, given, strict=True):
                require(isinstance(size, str) or size > 0, "sizes must be positive", got=size)
                if size != x.type.shape[axis]:
                    sizes[axis] = size
                if isinstance(sizes[axis], str):
                    scales[axis] = 0.0  # so that a size of 0, which would be that of the scale, is invalid
        else:
            numbers = _numbers(source.static(2))
            require(len(numbers) == len(axes), "each axis needs a scale", expected=len(axes), got=len(numbers))
            for axis, scale in zip(axes, numbers, strict=True):
                scales[axis] = scale
        operator = cls(
            tuple(scales),
            tuple(sizes) if any(sizes) else (),
            source.attribute("mode", "nearest"),
            coordinates,
            source.attribute("nearest_mode", "round_prefer_floor"),
            source.attribute("cubic_coeff_a", -0.75),
        )
        return source.add(operator, x)


def _numbers(scales: np.ndarray) -> tuple[float, ...]:
    require(scales.dtype.kind == "f" and scales.ndim == 1, "scales must be a list of numbers", got=list(scales.shape))
    return tuple(map(float, scales))


OPERATORS = (Resize,)
