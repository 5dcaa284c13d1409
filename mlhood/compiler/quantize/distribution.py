"""The distribution of a value's elements: minimum, maximum, and a histogram whose range grows.

Glow redistributes the counts of a histogram over equal bins whenever its range grows, which moves some of them into
the wrong bins. Here a bin is 2^exponent wide and starts at a multiple of its width; when the range grows, the width is
doubled, which merges pairs of bins. So counts are exact, and merging the distributions of two halves of the data gives
that of all data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.errors import CompilerError

BINS = 2048
# Bins narrower than float32's precision would be empty; 2^-149 is the smallest positive float32.
_MANTISSA_BITS, _MIN_EXPONENT = 24, -149
# BERT's mask is -10,000.
_LEAST_MASK = 1e4


@dataclass(frozen=True, eq=False)
class Distribution:
    """The elements seen so far.

    Args:
        low: The minimum.
        high: The maximum.
        exponent: The bins are 2^exponent wide: the smallest exponent for which `BINS` of them cover the range.
        first: Bin i holds the elements in [(first + i) 2^exponent, (first + i + 1) 2^exponent).
        counts: int64, the number of elements in each bin; the first and the last are not empty.
    """

    low: float
    high: float
    exponent: int
    first: int
    counts: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> Distribution:
        """Return the distribution of a non-empty array's elements.

        Raises:
            CompilerError: The array is empty, or an element is infinite or NaN.
        """
        if not array.size or not np.isfinite(array).all():
            raise CompilerError("only finite numbers can be profiled", got=describe_invalid(array))
        low, high = float(array.min()), float(array.max())
        exponent = _exponent(low, high)
        first = _bin(low, exponent)
        bins = np.floor(np.ldexp(array.ravel().astype(np.float64), -exponent)).astype(np.int64) - first
        return cls(low, high, exponent, first, np.bincount(bins).astype(np.int64))

    @property
    def count(self) -> int:
        """Number of elements."""
        return int(self.counts.sum())

    @property
    def edges(self) -> np.ndarray:
        """The edges of the bins: float64, one more than there are bins."""
        return np.ldexp(np.arange(self.first, self.first + len(self.counts) + 1, dtype=np.float64), self.exponent)

    @property
    def is_mask(self) -> bool:
        """Whether some elements are so large, and all others so small, that 8 bits would hold nothing of the others.

        Models without infinities hide attention scores by adding -10,000 or the least float.
        """
        limit = max(-self.low, self.high)
        if limit < _LEAST_MASK:
            return False
        edges = self.edges
        magnitude = np.minimum(np.abs(edges[:-1]), np.abs(edges[1:]))[self.counts > 0]
        return not ((magnitude > limit / 64) & (magnitude < limit / 4)).any()

    def merge(self, other: Distribution) -> Distribution:
        """Return the distribution of the elements of both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        exponent = _exponent(low, high)
        first, last = _bin(low, exponent), _bin(high, exponent)
        counts = np.zeros(last - first + 1, np.int64)
        for part in (self, other):
            bins = (np.arange(len(part.counts)) + part.first) >> min(exponent - part.exponent, 62)
            np.add.at(counts, bins - first, part.counts)
        return Distribution(low, high, exponent, first, counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Distribution):
            return False
        return all(map(np.array_equal, vars(self).values(), vars(other).values()))

    def __hash__(self) -> int:
        return hash((self.low, self.high, self.exponent, self.first))


def _bin(real: float, exponent: int) -> int:
    return math.floor(math.ldexp(real, -exponent))


def _exponent(low: float, high: float) -> int:
    """Return the smallest exponent for which `BINS` bins cover the range; a function of the range, monotonic in it."""
    finest = math.frexp(max(abs(low), abs(high)))[1] - _MANTISSA_BITS if low or high else _MIN_EXPONENT
    spread = math.frexp(high - low)[1] - BINS.bit_length() if high > low else _MIN_EXPONENT
    exponent = max(finest, spread, _MIN_EXPONENT)
    while _bin(high, exponent) - _bin(low, exponent) + 1 > BINS:
        exponent += 1
    return exponent


def describe_invalid(array: np.ndarray) -> str:
    """Return why an array has no distribution: it is empty, or how many elements are NaN or infinite."""
    if not array.size:
        return "no elements"
    return f"{int(np.isnan(array).sum())} nan and {int(np.isinf(array).sum())} inf among {array.size} elements"
