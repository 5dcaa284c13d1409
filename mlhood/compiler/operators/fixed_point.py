"""Multiplying integers by reals with integers alone: one multiplication and one shift.

A real scale r becomes multiplier / 2^shift, and round(x r) becomes (x multiplier + 2^(shift - 1)) >> shift. The shift
rounds down, so ties, which fall on a half exactly, go up: 2.5 to 3 and -2.5 to -2.

Glow writes the same as ((((x >> pre) * scale) + (1 << (post - 1))) >> post) + offset (`quantizeScaleOffset32To8`). Its
`pre` throws bits of x away so that the product fits int32; here products are int64, `pre` is always 0, and instead the
multiplier has as many bits as x leaves free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.errors import CompilerError

# Products and their sum stay within 2^62, so that the half that rounds still fits int64.
_PRODUCT_BITS = 62
# What one multiplication of 32 by 32 bits takes, as an int32 accumulator has it.
MULTIPLIER_BITS = 31


@dataclass(frozen=True)
class FixedPoint:
    """The real number multiplier / 2^shift.

    Args:
        multiplier: An integer; 1 where multiplying is a pure shift.
        shift: By how many bits the product is shifted right, 0 to 62.
    """

    multiplier: int
    shift: int

    @classmethod
    def of(cls, scale: float, bits: int = 31) -> FixedPoint:
        """Return the nearest one to a scale whose products with integers of `bits` bits fit int64.

        Its relative error is at most 2^-31 for accumulators of int32 (`bits` = 31); each further bit of the integers
        doubles it. Scales so large that one step of x already is out of every range are made as large as fits.

        Args:
            scale: Finite; negative scales have negative multipliers.
            bits: x is within -2^bits to 2^bits.
        """
        multipliers, shifts = fixed_points([np.array(scale, np.float64)], [bits])
        multiplier, shift = int(multipliers[0]), int(shifts)
        while shift and not multiplier % 2:
            multiplier, shift = multiplier // 2, shift - 1
        return cls(multiplier, shift)

    @property
    def is_shift(self) -> bool:
        """Whether the scale is a power of two, so that multiplying is shifting."""
        return self.multiplier > 0 and self.multiplier & (self.multiplier - 1) == 0

    @property
    def real(self) -> float:
        """The number itself."""
        return self.multiplier / 2**self.shift

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return round(x real), ties up, as int64."""
        return shifted(np.asarray(x, np.int64) * self.multiplier, np.array(self.shift))


def fixed_points(
    scales: Sequence[np.ndarray], bits: Sequence[int], widest: int = MULTIPLIER_BITS
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return integers m_i and s such that m_i / 2^s are the scales of terms x_i that are summed before the shift.

    One s for all terms rounds their sum once. It is as large as lets every product and the sum fit int64.

    Args:
        scales: float64 for each term, of shapes that stretch to one: one number, or one a channel.
        bits: For each term, x_i is within -2^bits to 2^bits.
        widest: No multiplier has more bits.

    Returns:
        The multipliers, int64 for each term, and the shifts, int64, all of the scales' common shape.

    Raises:
        CompilerError: A scale is not finite.
    """
    stretched = np.broadcast_arrays(*scales)
    if not all(np.isfinite(scale).all() for scale in stretched):
        raise CompilerError("a scale must be finite", got=", ".join(str(scale) for scale in scales))
    carry = (len(scales) - 1).bit_length()
    limits = [min(widest, _PRODUCT_BITS - carry - size) for size in bits]
    room = [limit - np.frexp(scale)[1].astype(np.int64) for limit, scale in zip(limits, stretched, strict=True)]
    shift = np.clip(np.min(room, axis=0), 0, _PRODUCT_BITS)
    whole = [np.rint(np.ldexp(scale, shift)) for scale in stretched]
    ends = [2.0**limit for limit in limits]
    return [np.clip(m, -end, end).astype(np.int64) for m, end in zip(whole, ends, strict=True)], shift


def shifted(total: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return total / 2^shift rounded to the nearest integer, ties up."""
    half = np.left_shift(np.int64(1), shift) >> 1
    return (total + half) >> shift
