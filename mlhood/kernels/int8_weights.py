"""Weights of quantised layers with their zero points, and how kernels multiply them: in bytes where that is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlhood.kernels.codegen.target import Target

_LARGEST = 2**15 - 1


@dataclass(frozen=True)
class Int8Weights:
    """Weights as the kernels take them, with zero points.

    Args:
        w: int8 or uint8 [F, ...].
        zero_point: Integers, one, or one for each filter.
        x_zero_point: Zero point of the input.
        bias: int32 [F] or None.
        x_limits: Smallest and largest byte of the input, if they are known: a ReLU before it makes the products of
            symmetric bytes small enough for faster instructions.
    """

    w: np.ndarray
    zero_point: int | np.ndarray = 0
    x_zero_point: int = 0
    bias: np.ndarray | None = None
    x_limits: tuple[int, int] | None = None

    def centred(self) -> np.ndarray:
        """Return the weights minus their zero points, int16 [F, ...], within -255 to 255."""
        zero_point = np.broadcast_to(np.asarray(self.zero_point, np.int16), self.w.shape[:1])
        return self.w.astype(np.int16) - zero_point.reshape(-1, *(1,) * (self.w.ndim - 1))

    def bias_for(self, base: int) -> np.ndarray:
        """Return the bias, int32 [F], for sums of weights times the input minus a base instead of its zero point."""
        filters = self.w.shape[0]
        bias = np.zeros(filters, np.int64) if self.bias is None else self.bias.astype(np.int64)
        remaining = self.x_zero_point - base
        return (bias - remaining * self.centred().reshape(filters, -1).sum(axis=1, dtype=np.int64)).astype(np.int32)


class Words(NamedTuple):
    """How many elements a word of the workspace holds, four bytes or two 16-bit integers, and what is subtracted."""

    elements: int
    base: int


def choose_words(target: Target, weights: Int8Weights, centred: np.ndarray, signed: bool) -> Words:
    """Return words of bytes where they are exact: with VNNI, or if no sum of two products can leave 16 bits.

    Args:
        target: The processor.
        weights: The weights.
        centred: Weights minus zero points [F, ..., channels]; pairs of channels are added.
        signed: Whether the input is int8.
    """
    least, zero_point = -128 if signed else 0, weights.x_zero_point
    pairs_only = Words(2, zero_point)
    if centred.min() < -128 or centred.max() > 127:
        return pairs_only
    if target.dot:
        return Words(4, least)
    if target.name != "avx2":
        return pairs_only
    low, high = weights.x_limits or (least, least + 255)
    low, high = min(low, zero_point), max(high, zero_point)  # padding has the value of the zero point
    missing = centred.shape[-1] % 2
    padded = np.pad(centred, [(0, 0)] * (centred.ndim - 1) + [(0, missing)]) if missing else centred
    pairs = padded.astype(np.int32).reshape(-1, 2)
    largest = max(np.maximum(pairs, 0).sum(axis=1).max(), -np.minimum(pairs, 0).sum(axis=1).min())
    return Words(4, low) if largest * (high - low) <= _LARGEST else pairs_only
