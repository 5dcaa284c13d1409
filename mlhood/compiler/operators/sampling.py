"""Sampling of a tensor at coordinates that are computed at run time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.indexing import require_equal
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


OPERATORS = (GridSample,)
