"""Blocks of pixels as channels, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.lengths import divide_dim, product
from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.operators.base import POSITIONAL, Movement, export_directly
from mlhood.compiler.operators.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Blocks(Movement):
    """Base: the elements of an image [n, c, h, w], of which axes are split and then merged in another order.

    Attributes:
        block: Side of a square of pixels that becomes channels, or that channels become.

    A subclass has the attribute `mode`, the order of the channels: "DCR" or "CRD".
    """

    block: int = 0

    onnx_names = (("block", "blocksize"),)
    sink_transpose = POSITIONAL

    def infer(self, x: TensorType) -> TensorType:
        require(x.rank == 4, "the input must have four axes", expected="[n, c, h, w]", got=list(x.shape))
        mode = self.attributes["mode"]
        require(mode in ("DCR", "CRD"), "unknown mode", expected="DCR or CRD", got=mode)
        require(self.block > 0, "the size of a block must be positive", got=self.block)
        return x.with_shape(self._shape(x.shape))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return self.view(x).reshape([int(size) for size in self._shape(x.shape)])

    def view(self, x: np.ndarray) -> np.ndarray:
        """Return x [n, c, h, w] as a view of six axes, whose order is that of the result's elements."""
        raise NotImplementedError

    def _shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        raise NotImplementedError


def _divided(size: Dim, divisor: int, what: str) -> Dim:
    fits = isinstance(size, str) or size % divisor == 0
    require(fits, f"the {what} is no multiple of the block's", expected=f"a multiple of {divisor}", got=size)
    return divide_dim(size, divisor)


@dataclass(frozen=True)
class DepthToSpace(Blocks):
    """Channels as blocks of pixels; they are ordered by pixel, then channel ("DCR"), or the other way round ("CRD").

    "CRD" is torch's PixelShuffle.
    """

    mode: str = "DCR"

    onnx = ("DepthToSpace",)
    to_onnx = export_directly

    def _shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        n, c, h, w = shape
        channels = _divided(c, self.block**2, "number of channels")
        return n, channels, product((h, self.block)), product((w, self.block))

    def view(self, x: np.ndarray) -> np.ndarray:
        (n, c, h, w), b = x.shape, self.block
        if self.mode == "DCR":
            return x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
        return x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)


@dataclass(frozen=True)
class SpaceToDepth(Blocks):
    """Blocks of pixels as channels, ordered by pixel, then channel ("DCR"), or the other way round ("CRD")."""

    mode: str = "DCR"

    onnx = ("SpaceToDepth",)

    def _shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        n, c, h, w = shape
        sides = (_divided(size, self.block, what) for size, what in ((h, "height"), (w, "width")))
        return n, product((c, self.block**2)), *sides

    def view(self, x: np.ndarray) -> np.ndarray:
        (n, c, h, w), b = x.shape, self.block
        order = (0, 3, 5, 1, 2, 4) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return x.reshape(n, c, h // b, b, w // b, b).transpose(order)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Write the mode "CRD", which newer opsets have, as a permutation of the channels."""
        if self.mode == "DCR":
            return writer.emit("SpaceToDepth", *inputs, name=name, blocksize=self.block)
        channels = writer.node.outputs[0].type.shape[1]
        require(isinstance(channels, int), "the number of channels must be known to be exported", got=channels)
        order = np.arange(int(channels)).reshape(self.block**2, -1).T.ravel()
        y = writer.emit("SpaceToDepth", *inputs, blocksize=self.block)
        return writer.emit("Gather", y, writer.constant(order), name=name, axis=1)


OPERATORS = (DepthToSpace, SpaceToDepth)
