"""The constants with which kernels turn 32-bit sums into bytes; the arithmetic is in `codegen.requantize`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.kernels.codegen.requantize import BLOCK, Requantization

_BYTE_RANGE = 255
_NARROW_SCALE = 0.25  # a sum of 32 bits times this, and an offset, fit into 32 bits


@dataclass(frozen=True, eq=False)
class Shifts:
    """Sums of terms times integers, shifted right: round(sum of term_i multiplier_i / 2^shift), ties up.

    Args:
        multipliers: int64 for each term: the sums, then z if there is one; one number, or one for each channel. Those
            of the sums are within -2^31 to 2^31, and so are those of z; no total exceeds 2^62.
        shift: int64, 0 to 62, with the shape of the multipliers.
    """

    multipliers: Sequence[np.ndarray]
    shift: np.ndarray


@dataclass(frozen=True, eq=False)
class Rescaling:
    """How the sums of a layer become bytes.

    Args:
        element: `int8` or `uint8`, of the result, of x and of z.
        offset: Added after rounding: the result's zero point.
        shifts: Multipliers and shifts; this or `scale`.
        scale: float64, by which a sum is multiplied; then it is rounded, ties to even.
        negative: With `shifts`, those of negative totals (LeakyRelu).
        low: Smallest byte of the result; None for the type's.
        high: Largest byte.
        z_offset: Zero point of z, which is subtracted from it.
        bound: Largest magnitude of a sum: 2^31 of a layer's, at most 255 of a byte minus its zero point.
    """

    element: str
    offset: int = 0
    shifts: Shifts | None = None
    scale: np.ndarray | None = None
    negative: Shifts | None = None
    low: int | None = None
    high: int | None = None
    z_offset: int = 0
    bound: int = 2**31

    @property
    def signed(self) -> bool:
        """Whether the bytes are int8."""
        return self.element == "int8"

    @property
    def has_z(self) -> bool:
        """Whether there is a second term."""
        return self.shifts is not None and len(self.shifts.multipliers) > 1

    def kind(self) -> Requantization:
        """Return the variant of the code."""
        if self.scale is not None:
            return Requantization(self.signed, "real", wide=float(np.max(np.abs(self.scale))) > _NARROW_SCALE)
        leaky = self.negative is not None
        wide = leaky or not _is_narrow(self.shifts, self.bound)
        return Requantization(self.signed, "shift", wide, residual=self.has_z, leaky=leaky)

    def fields(self) -> dict[str, int]:
        """Return the `OUTPUT_FIELDS` of an argument block."""
        limits = np.iinfo(self.element)
        low = int(limits.min) if self.low is None else self.low
        high = int(limits.max) if self.high is None else self.high
        return {"offset": self.offset, "z_offset": self.z_offset, "floor": low, "ceiling": high}

    def constants(
        self, channels: int, bias: np.ndarray | None = None, blocks: int | None = None, *, wide: bool | None = None
    ) -> np.ndarray:
        """Return the constants of each block of 16 channels.

        Args:
            channels: Number of channels; the last block is filled with zeros.
            bias: int32 [channels] or None.
            blocks: Number of blocks; by default as many as the channels need.
            wide: Whether the code is `wide`; by default as `kind` says.

        Returns:
            int64 [blocks, words].
        """
        kind = self.kind()
        blocks, starts = blocks or -(-channels // BLOCK), kind.sections
        out = np.zeros((blocks, starts["end"]), np.int64)

        def put(name: str, values: Any, dtype: Any = np.int64, *, parities: bool = True) -> None:
            padded = np.zeros(blocks * BLOCK, dtype)
            padded[:channels] = values
            if parities:
                padded = padded.reshape(blocks, BLOCK // 2, 2).transpose(0, 2, 1)
            words = np.ascontiguousarray(padded.reshape(blocks, BLOCK)).view(np.int64)
            out[:, starts[name] : starts[name] + words.shape[1]] = words

        put("bias", 0 if bias is None else bias, np.int32, parities=False)
        if self.scale is not None:
            put("scale", self.scale, np.float64, parities=False)
        for prefix, shifts in (("", self.shifts), ("negative_", self.negative)):
            if shifts is not None:
                _put_shifts(put, prefix, shifts, self.offset, kind.wide if wide is None else wide)
        return out


def _put_shifts(put: Any, prefix: str, shifts: Shifts, offset: int, wide: bool) -> None:
    shift = np.asarray(shifts.shift, np.int64)
    half, correction = np.left_shift(np.int64(1), shift) >> 1, np.full_like(shift, offset)
    if not wide:  # 2^63 is added before the shift, and 2^(63 - shift) subtracted after it, in 32 bits
        half, correction = half ^ np.iinfo(np.int64).min, correction - np.left_shift(np.int64(1), 63 - shift)
    put(prefix + "multiplier", shifts.multipliers[0])
    put(prefix + "half", half)
    put(prefix + "shift", shift)
    put(prefix + "correction", correction.astype(np.int32), np.int32, parities=False)
    if len(shifts.multipliers) > 1:
        put(prefix + "z_multiplier", shifts.multipliers[1])


def _is_narrow(shifts: Shifts | None, bound: int) -> bool:
    """Return whether all results are below 2^30, and all multipliers fit into 32 bits."""
    if shifts is None:
        return False
    magnitudes = [np.abs(np.asarray(multiplier, np.float64)) for multiplier in shifts.multipliers]
    largest = sum(m * limit for m, limit in zip(magnitudes, (bound, _BYTE_RANGE), strict=False))
    fits = largest <= np.ldexp(1.0, np.asarray(shifts.shift, np.int64).astype(np.int32) + 30)
    return bool(np.all(fits)) and all(float(m.max()) < 2.0**31 for m in magnitudes)
