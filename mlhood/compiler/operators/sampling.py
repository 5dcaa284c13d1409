"""Sampling of a tensor at coordinates, and in regions of interest, that are computed at run time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.indexing import require_equal, require_indices
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")


@dataclass(frozen=True)
class GridSample(Operator):
    """y[n, c, i, j, ...] = x[n, c] at the coordinates grid[n, i, j, ...], which are x, y, ... from -1 to 1.

    Source: ONNX, operator GridSample, as torch's grid_sample. Inputs: x [n, c, d1, ..., dr], grid [n, o1, ..., or, r],
    with 2 axes or 3. Output: [n, c, o1, ..., or].

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

    def infer(self, x: TensorType, grid: TensorType) -> TensorType:
        require_unquantized(x, grid)
        require(self.mode in MODES, "unknown mode", expected=", ".join(MODES), got=self.mode)
        require(self.padding in PADDINGS, "unknown padding mode", expected=", ".join(PADDINGS), got=self.padding)
        require(grid.is_float, "the grid must be floating-point", got=grid.element)
        require(x.is_float or self.mode == "nearest", "interpolation requires floating-point elements", got=x.element)
        require(x.rank in (4, 5) and grid.rank == x.rank, "the ranks must be equal, 4 or 5", got=(x.rank, grid.rank))
        require(x.rank == 4 or self.mode != "cubic", "cubic interpolation requires images", got=list(x.shape))
        require_equal("the grid does not match the input", (x.shape[0], x.rank - 2), (grid.shape[0], grid.shape[-1]))
        return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    def evaluate(self, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
        import torch  # which few models need
        from torch.nn.functional import grid_sample

        shape = (*x.shape[:2], *grid.shape[1:-1])
        if 0 in x.shape or 0 in shape:
            return np.zeros(shape, x.dtype)
        element = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        values, points = (torch.from_numpy(np.array(array, element)) for array in (x, grid))
        mode = self.mode if self.mode == "nearest" else f"bi{self.mode}"
        y = grid_sample(values, points, mode, self.padding, self.align_corners)
        return y.numpy().astype(x.dtype, copy=False)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        mode = self.mode if writer.opset >= 20 or self.mode == "nearest" else f"bi{self.mode}"
        options = {"padding_mode": self.padding, "align_corners": self.align_corners}
        return writer.emit("GridSample", *inputs, name=name, mode=mode, **options)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        mode = source.attribute("mode", "linear")  # opset 16 calls them bilinear and bicubic
        padding, aligned = source.attribute("padding_mode", "zeros"), bool(source.attribute("align_corners", 0))
        return source.add(cls(mode.removeprefix("bi"), padding, aligned), *source.inputs)


_POOLINGS = ("avg", "max")
_MOST_SAMPLES = 2**12  # of a bin, along an axis


class _Samples(NamedTuple):
    """Where samples lie along an axis, [bins, samples]: between two elements, with the weights of both."""

    low: np.ndarray
    high: np.ndarray
    low_weight: np.ndarray
    high_weight: np.ndarray

    def weights(self, length: int) -> np.ndarray:
        """Return how much each element of the axis adds to the sum of a bin's samples: [bins, length]."""
        total = np.zeros((len(self.low), length), self.low_weight.dtype)
        bins = np.arange(len(self.low))[:, None]
        np.add.at(total, (bins, self.low), self.low_weight)
        np.add.at(total, (bins, self.high), self.high_weight)
        return total


@dataclass(frozen=True)
class RoiAlign(Operator):
    """y[r, c] = the region r of the image x[batch[r], c], as bins: the mean or maximum of samples in each.

    Source: ONNX, operator RoiAlign; He et al., Mask R-CNN, 2017. Inputs: x [n, c, h, w]; regions [r, 4], the
    coordinates x1, y1, x2, y2; batch [r], which image each is of. Output: [r, c, height, width].

    Attributes:
        height: How many bins a region has vertically.
        width: How many it has horizontally.
        samples: How many samples a bin has along each axis; 0 for about one for each element of x.
        scale: What the regions' coordinates are multiplied by.
        mode: "avg" for the mean; "max" for the largest share that one element has in a sample.
        half_pixel: Whether the centre of the first element is at 0.5, instead of 0.
    """

    height: int = 1
    width: int = 1
    samples: int = 0
    scale: float = 1.0
    mode: str = "avg"
    half_pixel: bool = True

    arity = (3, 3)
    onnx = ("RoiAlign",)
    family = "pooling"

    def infer(self, x: TensorType, regions: TensorType, batch: TensorType) -> TensorType:
        require_unquantized(x, regions, batch)
        require(x.is_float, "the input must be floating-point", got=x.element)
        common_element(x, regions)
        require_indices(batch)
        require(x.rank == 4, "the input must be images", expected="[n, c, h, w]", got=list(x.shape))
        require(regions.rank == 2, "the regions must be a list", expected="[r, 4]", got=list(regions.shape))
        require_equal("each region needs four coordinates and an image", (*batch.shape, 4), regions.shape)
        require(self.mode in _POOLINGS, "unknown mode", expected=", ".join(_POOLINGS), got=self.mode)
        sizes = (self.height, self.width)
        require(min(sizes) >= 1, "height and width must be positive", got=sizes)
        valid = 0 <= self.samples <= _MOST_SAMPLES
        require(valid, "the number of samples is not supported", expected=f"0 to {_MOST_SAMPLES}", got=self.samples)
        return x.with_shape((regions.shape[0], x.shape[1], *sizes))

    def evaluate(self, x: np.ndarray, regions: np.ndarray, batch: np.ndarray) -> np.ndarray:
        y = np.zeros((len(regions), x.shape[1], self.height, self.width), x.dtype)
        valid = bool(((batch >= 0) & (batch < len(x))).all())
        require(valid, "batch index out of range", expected=f"0 to {len(x) - 1}")
        wide = regions.astype(np.result_type(regions.dtype, np.float32), copy=False)
        if y.size and x.size:
            for i, (region, image) in enumerate(zip(wide, batch, strict=True)):
                y[i] = self._pool(x[image], region)
        return y

    def _pool(self, image: np.ndarray, region: np.ndarray) -> np.ndarray:
        """Return the bins of one region of an image: [c, height, width]."""
        scaled = region * region.dtype.type(self.scale) - region.dtype.type(0.5 if self.half_pixel else 0)
        horizontal = self._samples(scaled[0], scaled[2], self.width, image.shape[2])
        vertical = self._samples(scaled[1], scaled[3], self.height, image.shape[1])
        if self.mode == "max":
            return self._largest(image, vertical, horizontal)
        count = max(vertical.low.shape[1] * horizontal.low.shape[1], 1)
        rows, columns = vertical.weights(image.shape[1]), horizontal.weights(image.shape[2])
        used, across = np.flatnonzero(rows.any(0)), np.flatnonzero(columns.any(0))
        part = image[:, used][:, :, across]
        return rows[:, used] @ (part @ columns[:, across].T) / rows.dtype.type(count)

    def _samples(self, start: np.floating, end: np.floating, bins: int, length: int) -> _Samples:
        """Return the samples of a region along an axis; those further than 1 from all elements weigh nothing."""
        size = end - start if self.half_pixel else max(end - start, start.dtype.type(1))
        step = size / start.dtype.type(bins)
        count = self.samples or np.ceil(step)
        fits = bool(np.isfinite(start) and count <= _MOST_SAMPLES)  # not if it is not a number
        require(fits, "a region is too large", expected=f"at most {_MOST_SAMPLES} samples in a bin", got=float(size))
        count = max(int(count), 0)
        middles = (np.arange(count) + 0.5).astype(start.dtype) * step / start.dtype.type(max(count, 1))
        places = start + np.arange(bins).astype(start.dtype)[:, None] * step + middles
        inside = (places >= -1) & (places <= length)
        places = places.clip(0, length - 1)
        low = places.astype(np.int64)
        share = places - low.astype(start.dtype)
        return _Samples(low, np.minimum(low + 1, length - 1), (1 - share) * inside, share * inside)

    def _largest(self, image: np.ndarray, vertical: _Samples, horizontal: _Samples) -> np.ndarray:
        """Return the largest product of an element and its weight in a sample: [c, height, width]."""
        y = None
        for i, j in itertools.product(range(vertical.low.shape[1]), range(horizontal.low.shape[1])):
            for row, weight in ((vertical.low, vertical.low_weight), (vertical.high, vertical.high_weight)):
                for column, share in (
                    (horizontal.low, horizontal.low_weight),
                    (horizontal.high, horizontal.high_weight),
                ):
                    part = image[:, row[:, i, None], column[:, j]] * (weight[:, i, None] * share[:, j])
                    y = part if y is None else np.maximum(y, part)
        return np.zeros((len(image), self.height, self.width), image.dtype) if y is None else y

    def workspace(self, *types: TensorType | None) -> int:
        if types[0] is None:
            return 0
        _, channels, rows, columns = (int(axis) for axis in types[0].shape)
        bins = self.height + self.width
        image = channels * (rows * columns + rows * self.width + 2 * self.height * self.width)
        return image + bins * (8 * (self.samples or _MOST_SAMPLES) + rows + columns)

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        sizes = {"output_height": self.height, "output_width": self.width, "sampling_ratio": self.samples}
        pixels = "half_pixel" if self.half_pixel else "output_half_pixel"
        options = {"spatial_scale": self.scale, "mode": self.mode, "coordinate_transformation_mode": pixels}
        return writer.emit("RoiAlign", *inputs, name=name, **sizes, **options)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        pixels = source.attribute("coordinate_transformation_mode", "half_pixel")
        known = ("half_pixel", "output_half_pixel")
        require(pixels in known, "unknown coordinates", expected=", ".join(known), got=pixels)
        sizes = source.attribute("output_height", 1), source.attribute("output_width", 1)
        samples, scale = source.attribute("sampling_ratio", 0), source.attribute("spatial_scale", 1.0)
        half = source.opset >= 16 and pixels == "half_pixel"  # before, there was no choice
        operator = cls(*sizes, samples, scale, source.attribute("mode", "avg"), half)
        return source.add(operator, source.input(0), source.input(1), source.input(2))


OPERATORS = (GridSample, RoiAlign)
