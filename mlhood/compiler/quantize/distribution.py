"""How the elements of one value are distributed: least, largest, and a histogram whose range grows.

Glow spreads the counts of a histogram anew over equal bins whenever its range grows, which moves some of them into
wrong bins. Here a bin is 2^exponent wide and starts at a multiple of that; a range that grows doubles the width, which
joins bins in pairs. So counts are exact, none is lost, and the distribution of two halves of the data, merged, is that
of all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.errors import CompilerError

BINS = 2048
# Finer bins than a float32's own steps would only be empty; 2^-149 is the least float32.
_MANTISSA, _LEAST = 24, -149


@dataclass(frozen=True, eq=False)
class Distribution:
    """Elements seen so far.

    Args:
        low: The least.
        high: The largest.
        exponent: The bins are 2^exponent wide: the least for which `BINS` of them hold the range.
        first: Bin i holds the elements from (first + i) 2^exponent on, up to the next bin's.
        counts: int64, how many elements each bin holds; the first and the last hold at least one.
    """

    low: float
    high: float
    exponent: int
    first: int
    counts: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> Distribution:
        """Return the distribution of an array's elements, of which there must be one at least.

        Raises:
            CompilerError: One of them is infinite or not a number.
        """
        if not array.size or not np.isfinite(array).all():
            raise CompilerError("only finite numbers can be profiled", got=_unfit(array))
        low, high = float(array.min()), float(array.max())
        exponent = _exponent(low, high)
        first = _bin(low, exponent)
        places = np.floor(np.ldexp(array.ravel().astype(np.float64), -exponent)).astype(np.int64) - first
        return cls(low, high, exponent, first, np.bincount(places).astype(np.int64))

    @property
    def count(self) -> int:
        """How many elements there are."""
        return int(self.counts.sum())

    @property
    def edges(self) -> np.ndarray:
        """Where the bins begin and end: float64, one more than there are bins."""
        return np.ldexp(np.arange(self.first, self.first + len(self.counts) + 1, dtype=np.float64), self.exponent)

    def coarser(self) -> Distribution:
        """Return the distribution with bins joined in pairs, which are then wider than they need to be."""
        places = ((np.arange(len(self.counts)) + self.first) >> 1) - (self.first >> 1)
        counts = np.bincount(places, self.counts).astype(np.int64)
        return Distribution(self.low, self.high, self.exponent + 1, self.first >> 1, counts)

    def merge(self, other: Distribution) -> Distribution:
        """Return the distribution of both data together."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        exponent = _exponent(low, high)
        first, last = _bin(low, exponent), _bin(high, exponent)
        counts = np.zeros(last - first + 1, np.int64)
        for one in (self, other):
            places = (np.arange(len(one.counts)) + one.first) >> min(exponent - one.exponent, 62)
            np.add.at(counts, places - first, one.counts)
        return Distribution(low, high, exponent, first, counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.low, self.high, self.exponent, self.first))

    def to_json(self) -> dict[str, object]:
        """Return the distribution as plain data."""
        return {
            "low": self.low,
            "high": self.high,
            "exponent": self.exponent,
            "first": self.first,
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_json(cls, data: object, where: str) -> Distribution:
        """Return what `to_json` wrote.

        Raises:
            CompilerError: The data is something else; the error names the place.
        """
        if not isinstance(data, dict) or data.keys() != {"low", "high", "exponent", "first", "counts"}:
            raise CompilerError("this is no distribution", where=where, expected="low, high, exponent, first, counts")
        low, high, counts = data["low"], data["high"], data["counts"]
        ends = isinstance(low, float) and isinstance(high, float) and math.isfinite(low) and math.isfinite(high)
        if not ends or low > high or max(abs(low), abs(high)) > np.finfo(np.float64).max / 4:
            raise CompilerError("the range of a distribution is none", where=where, got=f"{low} to {high}")
        exponent = _exponent(low, high)
        bins = _bin(high, exponent) - _bin(low, exponent) + 1
        fits = isinstance(counts, list) and len(counts) == bins and all(_is_count(one) for one in counts)
        if not fits or (data["exponent"], data["first"]) != (exponent, _bin(low, exponent)) or not sum(counts):
            raise CompilerError("the histogram of a distribution does not fit its range", where=where)
        return cls(low, high, exponent, _bin(low, exponent), np.array(counts, np.int64))


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**53


def _bin(real: float, exponent: int) -> int:
    return math.floor(math.ldexp(real, -exponent))


def _exponent(low: float, high: float) -> int:
    """Return the least width for which `BINS` bins hold the range; it depends on nothing else, and grows with it."""
    finest = math.frexp(max(abs(low), abs(high)))[1] - _MANTISSA if low or high else _LEAST
    spread = math.frexp(high - low)[1] - BINS.bit_length() if high > low else _LEAST
    exponent = max(finest, spread, _LEAST)
    while _bin(high, exponent) - _bin(low, exponent) + 1 > BINS:
        exponent += 1
    return exponent


def _unfit(array: np.ndarray) -> str:
    if not array.size:
        return "no elements"
    return f"{int(np.isnan(array).sum())} nan and {int(np.isinf(array).sum())} inf among {array.size} elements"
