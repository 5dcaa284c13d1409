"""Integers times a real scale, with integer arithmetic only: one multiplication and one shift.

A real scale r becomes multiplier / 2^shift, and round(x r) becomes (x multiplier + 2^(shift - 1)) >> shift. The shift
rounds down, so ties are rounded up: 2.5 to 3 and -2.5 to -2.

Glow writes this as ((((x >> pre) * scale) + (1 << (post - 1))) >> post) + offset (`quantizeScaleOffset32To8`), where
`pre` drops bits of x so that the product fits into int32. Here products are int64, `pre` is always 0, and instead the
multiplier has as many bits as x leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.errors import CompilerError

# Products and their sum stay within 2^62, so that adding one half for rounding cannot overflow int64.
_PRODUCT_BITS = 62
# Of a factor in a multiplication of 32 by 32 bits, for int32 accumulators.
MULTIPLIER_BITS = 31


@dataclass(frozen=True)
class FixedPoint:
    """The real number multiplier / 2^shift.

    Args:
        multiplier: An integer; 1 for a pure shift.
        shift: Number of bits by which the product is shifted right, 0 to 62.
    """

    multiplier: int
    shift: int

    @classmethod
    def of(cls, scale: float, bits: int = 31) -> FixedPoint:
        """Return the approximation of a scale for integers of `bits` bits, whose products then fit into int64.

        Its relative error is at most 2^-31 for int32 accumulators (`bits` = 31), and doubles with each further bit.
        Scales that are so large that a single step of x overflows every range are clamped.

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
    def real(self) -> float:
        """The number that is represented."""
        return self.multiplier / 2**self.shift

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return round(x real), ties up, as int64."""
        return round_shift(np.asarray(x, np.int64) * self.multiplier, np.array(self.shift))


def fixed_points(
    scales: Sequence[np.ndarray], bits: Sequence[int], max_bits: int = MULTIPLIER_BITS
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return integers m_i and s such that m_i / 2^s approximate the scales of terms x_i, which are summed and shifted.

    With one s for all terms, their sum is rounded once; s is the largest for which products and sum fit into int64.

    Args:
        scales: float64 for each term, of shapes that broadcast: one number, or one for each channel.
        bits: For each term, x_i is within -2^bits to 2^bits.
        max_bits: Upper bound of the bits of a multiplier.

    Returns:
        The multipliers, int64 for each term, and the shifts, int64, all of the scales' broadcast shape.

    Raises:
        CompilerError: A scale is not finite.
    """
    scales = np.broadcast_arrays(*scales)
    if not all(np.isfinite(scale).all() for scale in scales):
        raise CompilerError("a scale must be finite", got=", ".join(map(str, scales)))
    carry = (len(scales) - 1).bit_length()
    limits = [min(max_bits, _PRODUCT_BITS - carry - size) for size in bits]
    shifts = [limit - np.frexp(scale)[1].astype(np.int64) for limit, scale in zip(limits, scales, strict=True)]
    shift = np.clip(np.min(shifts, axis=0), 0, _PRODUCT_BITS)
    multipliers = []
    for scale, limit in zip(scales, limits, strict=True):
        rounded = np.rint(np.ldexp(scale, shift))
        multipliers.append(np.clip(rounded, -(2.0**limit), 2.0**limit).astype(np.int64))
    return multipliers, shift


def round_shift(total: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Return total / 2^shift rounded to the nearest integer, ties up."""
    half = np.left_shift(np.int64(1), shift) >> 1
    return (total + half) >> shift
