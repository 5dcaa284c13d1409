"""Operators on blocked activations, which back ends with vector registers ask for.

Plain activations are [N, C, H, W]. Blocked ones are [N, ceil(C / lanes), H, W, lanes]: as many channels as a register
has lanes are adjacent. The lanes of the last block beyond the channels are zero after `ToBlocked` and a convolution,
and undefined after other operators; nothing reads them. Element-wise operators work on blocked activations as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import divide_dim
from mlhood.compiler.hir.operator import Operator, Range, require
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.integer import QuantizedConv
from mlhood.compiler.operators.integer_elementwise import QuantizedAveragePool, QuantizedGlobalAveragePool
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, MaxPool, PoolOperator


def blocked_type(x: TensorType, lanes: int) -> TensorType:
    """Return the type of a plain activation in the blocked layout."""
    batch, channels, *image = x.shape
    return TensorType(x.element, (batch, divide_dim(channels, lanes, up=True), *image, lanes), x.quantization)


def plain_type(x: TensorType, channels: Dim) -> TensorType:
    """Return the type of a blocked activation in the plain layout."""
    require(x.rank == 5, "a blocked activation has five axes", expected="[N, blocks, H, W, lanes]", got=list(x.shape))
    batch, blocks, *image, lanes = x.shape
    fits = isinstance(channels, str) or divide_dim(channels, int(lanes), up=True) == blocks
    require(fits, "the blocks do not hold these channels", expected=f"{channels} channels", got=list(x.shape))
    return TensorType(x.element, (batch, channels, *image), x.quantization)


def to_blocked(x: np.ndarray, lanes: int) -> np.ndarray:
    """Return [N, C, H, W] as [N, ceil(C / lanes), H, W, lanes], with zeros beyond C."""
    batch, channels, *image = x.shape
    padded = np.pad(x, ((0, 0), (0, -channels % lanes), (0, 0), (0, 0)))
    split = padded.reshape(batch, padded.shape[1] // lanes, lanes, *image)
    return np.ascontiguousarray(np.moveaxis(split, 2, -1))


def to_plain(x: np.ndarray, channels: int) -> np.ndarray:
    """Return [N, blocks, H, W, lanes] as [N, channels, H, W]."""
    batch, blocks, *image, lanes = x.shape
    return np.ascontiguousarray(np.moveaxis(x, -1, 2).reshape(batch, blocks * lanes, *image)[:, :channels])


class _Layout(Operator):
    family = "shape"

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return min(inputs[0][0], 0.0), max(inputs[0][1], 0.0)


@dataclass(frozen=True)
class ToBlocked(_Layout):
    """y = x in the blocked layout: x [N, C, H, W] -> y [N, ceil(C / lanes), H, W, lanes]."""

    lanes: int

    def infer(self, x: TensorType) -> TensorType:
        require(x.quantization is None or x.quantization.axis is None, "the tensor must be quantised per tensor")
        require(x.rank == 4, "only images can be blocked", expected="[N, C, H, W]", got=list(x.shape))
        require(self.lanes >= 1, "a block has at least one lane", got=self.lanes)
        return blocked_type(x, self.lanes)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return to_blocked(x, self.lanes)


@dataclass(frozen=True)
class ToPlain(_Layout):
    """y = x in the plain layout: x [N, ceil(C / lanes), H, W, lanes] -> y [N, C, H, W]."""

    channels: int

    def infer(self, x: TensorType) -> TensorType:
        return plain_type(x, self.channels)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return to_plain(x, self.channels)


@dataclass(frozen=True)
class BlockedConv(Conv):
    """A convolution whose result, and residual branch, are blocked.

    Inputs: x blocked, or plain; w [F, C / group, KH, KW], bias [F] or none, z of the output's shape or none.
    Output: y [N, ceil(F / lanes), OH, OW, lanes].

    Attributes:
        lanes: Channels in a block.
        plain_input: Whether x is plain [N, C, H, W], as the image that a network begins with.
    """

    lanes: int = 8
    plain_input: bool = False

    onnx = ()

    def infer(
        self, x: TensorType, w: TensorType, bias: TensorType | None = None, z: TensorType | None = None
    ) -> TensorType:
        require(w.rank == 4, "only convolutions of images can be blocked", got=list(w.shape))
        plain = x if self.plain_input else plain_type(x, int(w.shape[1]) * self.group)
        y = blocked_type(super().infer(plain, w, bias), self.lanes)
        require(z in (None, y), "the residual branch has another type", expected=list(y.shape), got=z and list(z.shape))
        return y

    def evaluate(
        self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, z: np.ndarray | None = None
    ) -> np.ndarray:
        plain = x if self.plain_input else to_plain(x, w.shape[1] * self.group)
        residual = None if z is None else to_plain(z, len(w))
        return to_blocked(super().evaluate(plain, w, bias, residual), self.lanes)

    def workspace(self, *types: TensorType | None) -> int:
        x, w = types[0], types[1]
        if x is None or w is None:
            return 0
        plain = x if self.plain_input else plain_type(x, int(w.shape[1]) * self.group)
        return super().workspace(plain, w)

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        weight = inputs[1]
        return math.prod((output[0], *output[2:4])) * math.prod(weight)


class _BlockedPool(Operator):
    """Mixin: pooling, of each lane like of a channel."""

    onnx = ()

    def infer(self, x: TensorType) -> TensorType:
        lanes = int(x.shape[-1]) if x.rank == 5 and isinstance(x.shape[-1], int) else 0
        require(lanes > 0, "a blocked activation has five axes, the last one static", got=list(x.shape))
        batch, blocks, *image, _ = x.shape
        y = super().infer(TensorType(x.element, (batch, blocks, *image), x.quantization))
        return y.with_shape((*y.shape, lanes))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        batch, blocks, *image, lanes = x.shape
        y = super().evaluate(np.moveaxis(x, -1, 2).reshape(batch, blocks * lanes, *image))
        return np.ascontiguousarray(np.moveaxis(y.reshape(batch, blocks, lanes, *y.shape[2:]), 2, -1))

    def workspace(self, *types: TensorType | None) -> int:
        x = types[0]
        if x is None or not isinstance(self, PoolOperator):
            return 0
        batch, blocks, *image, lanes = x.shape
        return self.window.workspace((batch, int(blocks) * int(lanes), *image))


@dataclass(frozen=True)
class BlockedMaxPool(_BlockedPool, MaxPool):
    """y = the largest element of each window; x and y are blocked."""


@dataclass(frozen=True)
class BlockedAveragePool(_BlockedPool, AveragePool):
    """y = the mean of each window; x and y are blocked."""


class BlockedGlobalAveragePool(_BlockedPool, GlobalAveragePool):
    """y[n, block, 1, 1, lane] = the mean of x[n, block, ..., lane]."""


# -- integers


@dataclass(frozen=True)
class BlockedQuantizedConv(QuantizedConv):
    """A convolution of quantised tensors whose result, and residual branch, are blocked; see `BlockedConv`.

    Attributes:
        lanes: Channels in a block.
        plain_input: Whether x is plain [N, C, H, W].
        input_limits: The smallest and the largest integer that x can hold, where less than its type can; or none.
    """

    lanes: int = 16
    plain_input: bool = False
    input_limits: tuple[int, ...] = ()

    onnx = ()

    def infer(
        self, x: TensorType, w: TensorType, bias: TensorType | None = None, z: TensorType | None = None
    ) -> TensorType:
        require(w.rank == 4, "only convolutions of images can be blocked", got=list(w.shape))
        return blocked_type(super().infer(*self._plain_types((x, w, bias, z))), self.lanes)

    def _plain_types(self, types: Sequence[TensorType | None]) -> Sequence[Any]:
        x, w, bias, z = (*types, None, None)[:4]
        if x is None or w is None:
            return types
        plain = x if self.plain_input else plain_type(x, int(w.shape[1]) * self.group)
        return plain, w, bias, None if z is None else plain_type(z, w.shape[0])

    def evaluate_typed(
        self,
        types: tuple[TensorType, ...],
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        z: np.ndarray | None = None,
    ) -> np.ndarray:
        plain = x if self.plain_input else to_plain(x, w.shape[1] * self.group)
        residual = None if z is None else to_plain(z, len(w))
        types = tuple(self._plain_types(types))
        return to_blocked(super().evaluate_typed(types, plain, w, bias, residual), self.lanes)

    def workspace(self, *types: TensorType | None) -> int:
        return super().workspace(*self._plain_types(types))

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        return math.prod((output[0], *output[2:4])) * math.prod(inputs[1])


class _BlockedIntegerPool(_BlockedPool):
    """Mixin: pooling of quantised tensors, of each lane like of a channel."""

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        batch, blocks, *image, lanes = x.shape
        plain = np.moveaxis(x, -1, 2).reshape(batch, blocks * lanes, *image)
        type = TensorType(types[0].element, plain.shape, types[0].quantization)
        y = super().evaluate_typed((type,), plain)
        return np.ascontiguousarray(np.moveaxis(y.reshape(batch, blocks, lanes, *y.shape[2:]), 2, -1))


@dataclass(frozen=True)
class BlockedQuantizedAveragePool(_BlockedIntegerPool, QuantizedAveragePool):
    """AveragePool of a quantised tensor; x and y are blocked."""


@dataclass(frozen=True)
class BlockedQuantizedGlobalAveragePool(_BlockedIntegerPool, QuantizedGlobalAveragePool):
    """GlobalAveragePool of a quantised tensor; x and y are blocked."""


OPERATORS = (
    ToBlocked,
    ToPlain,
    BlockedConv,
    BlockedMaxPool,
    BlockedAveragePool,
    BlockedGlobalAveragePool,
    BlockedQuantizedConv,
    BlockedQuantizedAveragePool,
    BlockedQuantizedGlobalAveragePool,
)
