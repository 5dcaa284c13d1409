"""Resizing: a tensor sampled on a finer or coarser grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.lengths import scale_dim
from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import Dim, Shape, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
POLICIES = ("stretch", "not_larger", "not_smaller")
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
            With a policy other than "stretch", all axes that have one are scaled by the same factor instead.
        mode: "nearest", "linear" or "cubic".
        coordinates: How an index of y becomes a coordinate of x: ONNX's `coordinate_transformation_mode`.
        rounding: Which element is the nearest: ONNX's `nearest_mode`.
        cubic_a: Parameter of the cubic convolution kernel.
        exclude_outside: Whether elements outside of x have weight 0; otherwise the edge is repeated.
        antialias: Whether an axis that becomes shorter is a mean of all elements that a new one covers.
        policy: "stretch", or that no axis becomes longer than its size, "not_larger", or none shorter, "not_smaller".
        roi: For "tf_crop_and_resize": the first coordinate of each axis, then the last, as shares of its length.
        extrapolation: For "tf_crop_and_resize": the value outside of x.
    """

    scales: tuple[float, ...]
    sizes: tuple[Dim, ...] = ()
    mode: str = "nearest"
    coordinates: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    policy: str = "stretch"
    roi: tuple[float, ...] = ()
    extrapolation: float = 0.0

    onnx = ("Resize", "Upsample")

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        lengths = len(self.scales), len(self.sizes) or x.rank
        require(lengths == (x.rank, x.rank), "each axis needs a scale or a size", expected=x.rank, got=lengths)
        sizes = self.sizes or (0,) * x.rank
        known = [(scale, size) for scale, size in zip(self.scales, sizes, strict=True) if isinstance(size, int)]
        valid = all(size > 0 or (size == 0 and math.isfinite(scale) and scale > 0) for scale, size in known)
        require(valid, "scales and sizes must be positive", got=f"{self.scales} and {self.sizes}")
        require(self.mode in MODES, "unknown resize mode", expected=", ".join(MODES), got=self.mode)
        known, names = self.coordinates in COORDINATES, ", ".join(COORDINATES)
        require(known, "these coordinates are not supported", expected=names, got=self.coordinates)
        require(self.rounding in ROUNDING, "unknown rounding mode", expected=", ".join(ROUNDING), got=self.rounding)
        require(x.is_float or self.mode == "nearest", "interpolation requires floating-point elements", got=x.element)
        require(self.policy in POLICIES, "unknown policy", expected=", ".join(POLICIES), got=self.policy)
        crops = self.coordinates == "tf_crop_and_resize"
        valid = not crops or len(self.roi) == 2 * x.rank
        require(valid, "each axis needs two numbers of the region", expected=2 * x.rank, got=len(self.roi))
        return x.with_shape(self._lengths(x.shape))

    def _lengths(self, shape: Shape) -> list[Dim]:
        """Return the new lengths of the axes."""
        if self.policy != "stretch" and self.sizes:
            factor = self._common_factor(shape)
            resized = zip(shape, self.sizes, strict=True)
            return [int(factor * int(old) + 0.5) if new else old for old, new in resized]
        return [
            self.sizes[axis] if self.sizes and self.sizes[axis] else scale_dim(size, self.scales[axis])
            for axis, size in enumerate(shape)
        ]

    def _common_factor(self, shape: Shape) -> float:
        """Return the factor of all axes that have a size, by the policy."""
        factors = []
        for old, new in zip(shape, self.sizes, strict=True):
            if new:
                known = isinstance(old, int) and old > 0 and isinstance(new, int)
                require(known, "the policy needs the lengths of the axes", got=list(shape))
                factors.append(int(new) / int(old))
        return min(factors) if self.policy == "not_larger" else max(factors)

    def _factors(self, shape: Shape, lengths: Sequence[Dim]) -> list[float]:
        """Return by what the length of each axis is multiplied, before it is rounded."""
        if not self.sizes:
            return list(self.scales)
        common = self._common_factor(shape) if self.policy != "stretch" else None
        given = zip(self.sizes, self.scales, shape, lengths, strict=True)
        return [
            scale if not new or not int(old) else common if common is not None else int(length) / int(old)
            for new, scale, old, length in given
        ]

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
            return x  # whatever the scales and the region, in ONNX Runtime
        outside = np.zeros(lengths, bool)
        for axis, (coordinates, indices, weights) in self.neighbours(x.shape).items():
            along = [-1 if i == axis else 1 for i in range(x.ndim)]
            outside |= ((coordinates < 0) | (coordinates > x.shape[axis] - 1)).reshape(along)
            if self.mode == "nearest":
                x = np.take(x, indices[0], axis=axis)
                continue
            terms = zip(weights.astype(element), indices, strict=True)
            x = np.asarray(sum(weight.reshape(along) * np.take(x, index, axis=axis) for weight, index in terms))
        return np.where(outside, element.type(self.extrapolation), x) if self.coordinates == "tf_crop_and_resize" else x

    def neighbours(self, shape: Shape) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return for each axis that changes, which elements of x a new one is the weighted sum of.

        Returns:
            The coordinates float64 [length] of the new elements on the old axis, and for each of the elements around
            them the index, int64 [taps, length], and the weight, float64 [taps, length].
        """
        lengths, changed = [int(length) for length in self._lengths(shape)], {}
        factors = self._factors(shape, lengths)
        for axis, (old, length, factor) in enumerate(zip(shape, lengths, factors, strict=True)):
            size = int(old)
            if length == size and factor == 1:
                continue  # also a crop, in ONNX's reference implementation and ONNX Runtime
            require(size > 0, "an empty axis cannot be resized", got=list(shape))
            coordinates = self._coordinates(axis, size, length, factor)
            changed[axis] = coordinates, *self._taps(coordinates, size, min(factor, 1) if self.antialias else 1)
        return changed

    def _coordinates(self, axis: int, size: int, length: int, factor: float) -> np.ndarray:
        """Return the coordinates of the new axis' elements on the old axis: float64 [length].

        They are rounded to float32, as in ONNX Runtime: it decides which of two elements is the nearest.
        """
        index, scale, last = np.arange(length, dtype=np.float32), np.float32(factor), np.float32(size - 1)
        if self.coordinates == "tf_crop_and_resize":
            start, stop = np.array(self.roi, np.float32).reshape(2, -1)[:, axis]
            middle, step = (start + stop) * last / 2, (stop - start) * last / np.float32(max(length - 1, 1))
            coordinates = start * last + index * step if length > 1 else index + middle
        elif self.coordinates == "align_corners":  # by the length as it is, not length * scale, as in torch
            coordinates = index * last / np.float32(max(length - 1, 1))
        elif self.coordinates == "asymmetric":
            coordinates = index / scale
        elif self.coordinates == "tf_half_pixel_for_nn":
            coordinates = (index + np.float32(0.5)) / scale
        elif self.coordinates == "pytorch_half_pixel" and length == 1:
            coordinates = index
        else:
            symmetric = self.coordinates == "half_pixel_symmetric"
            offset = np.float32(size / 2) * (1 - np.float32(length) / (scale * np.float32(size))) if symmetric else 0
            coordinates = offset + (index + np.float32(0.5)) / scale - np.float32(0.5)
        return coordinates.astype(np.float64)

    def _taps(self, coordinates: np.ndarray, size: int, density: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices and weights of the elements around each coordinate; see `neighbours`.

        Args:
            coordinates: On the axis.
            size: Length of the axis.
            density: How many coordinates there are for each element; the kernel is stretched by its inverse.
        """
        if self.mode == "nearest":
            nearest = ROUNDING[self.rounding](coordinates).clip(0, size - 1).astype(np.int64)
            return nearest[None], np.ones((1, len(nearest)))
        first = np.floor(coordinates).astype(np.int64)
        reach = math.ceil((1 if self.mode == "linear" else 2) / density)
        taps = range(1 - reach, reach + 1)
        weights = np.stack([self._weight(np.abs(coordinates - first - tap) * density) for tap in taps])
        indices = np.stack([first + tap for tap in taps])
        if self.exclude_outside:
            weights = np.where((indices >= 0) & (indices < size), weights, 0)
        if self.exclude_outside or density < 1:
            weights /= weights.sum(axis=0)
        return indices.clip(0, size - 1), weights

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
        half = len(self.roi) // 2
        region = [self.roi[i] for i in (*axes, *(half + i for i in axes))] if axes and self.roi else self.roi
        return writer.emit(
            *("Resize", *inputs, writer.constant(np.array(region, np.float32)) if region else "", scales, sizes),
            name=name,
            axes=tuple(axes) or None,
            mode=self.mode,
            coordinate_transformation_mode=self.coordinates,
            nearest_mode=self.rounding,
            cubic_coeff_a=self.cubic_a,
            exclude_outside=self.exclude_outside,
            antialias=self.antialias,
            keep_aspect_ratio_policy=self.policy if axes else None,
            extrapolation_value=self.extrapolation,
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
        x = source.input(0)
        axes = [normalize_axis(axis, x.type.rank) for axis in source.attribute("axes", tuple(range(x.type.rank)))]
        scales: list[float] = [1.0] * x.type.rank
        sizes: list[Dim] = [0] * x.type.rank
        policy = source.attribute("keep_aspect_ratio_policy", "stretch")
        coordinates = source.attribute("coordinate_transformation_mode", "half_pixel")
        if source.has(3) and source.dims(3):
            given = source.dims(3)
            require(len(given) == len(axes), "each axis needs a size", expected=len(axes), got=len(given))
            for axis, size in zip(axes, given, strict=True):
                require(isinstance(size, str) or size > 0, "sizes must be positive", got=size)
                if size != x.type.shape[axis] or (isinstance(size, int) and policy != "stretch"):
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
            bool(source.attribute("exclude_outside", 0)),
            bool(source.attribute("antialias", 0)),
            policy if any(sizes) else "stretch",
            _region(source, axes, x.type.rank) if coordinates == "tf_crop_and_resize" else (),
            source.attribute("extrapolation_value", 0.0),
        )
        return source.add(operator, x)


def _numbers(scales: np.ndarray) -> tuple[float, ...]:
    require(scales.dtype.kind == "f" and scales.ndim == 1, "scales must be a list of numbers", got=list(scales.shape))
    return tuple(map(float, scales))


def _region(source: OnnxNode, axes: list[int], rank: int) -> tuple[float, ...]:
    """Return the region of all axes, from that of some: the whole length of the others."""
    given = _numbers(source.static(1)) if source.has(1) else ()
    require(len(given) == 2 * len(axes), "each axis needs two numbers of the region", expected=2 * len(axes), got=given)
    region = [0.0] * rank + [1.0] * rank
    for i, axis in enumerate(axes):
        region[axis], region[rank + axis] = given[i], given[len(axes) + i]
    return tuple(region)


OPERATORS = (Resize,)
