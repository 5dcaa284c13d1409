"""Medians and what they are worth: quartiles, and the bootstrap interval of a median, computed exactly.

Timings are skewed and have outliers, so nothing here is a mean. The bootstrap draws n values with replacement from the
n there are, and looks how far the median of what was drawn moves. For a median this needs no random numbers: the
median of a draw is at most the k-th smallest value when more than half of n draws fall among the k smallest, and that
probability is binomial (B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979,
section 3). So an interval depends on the values alone: not on their order, and on no seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mlhood.errors import MeasureError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """How many times as large one thing is as another, with the interval of that median.

    Args:
        value: Median ratio.
        low: Lower end of its interval.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high

    @property
    def inverse(self) -> Ratio:
        """The other thing's ratio to this one."""
        return Ratio(1 / self.value, 1 / self.high, 1 / self.low)


def median_ratio(above: Sequence[float], below: Sequence[float], *, paired: bool) -> Ratio:
    """Return by how much `above` exceeds `below`, as a ratio.

    Args:
        above: Positive numbers, one a round.
        below: Likewise; as many as `above` where paired.
        paired: Both come from the same rounds, so what slowed a round down slowed both: the median is that of the
            per-round ratios. Otherwise it is the ratio of the medians, and its interval goes from the one's low end
            over the other's high end to the reverse, which is wider than need be.

    Raises:
        MeasureError: There is nothing to compare, or the rounds are not the same number.
    """
    if not paired:
        (low, high), (below_low, below_high) = interval(above), interval(below)
        return Ratio(statistics.median(above) / statistics.median(below), low / below_high, high / below_low)
    if len(above) != len(below):
        raise MeasureError("paired ratios need the same rounds", expected=len(above), got=len(below))
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return Ratio(middle(ratios), *interval(ratios))


def middle(ratios: Sequence[float]) -> float:
    """Return the median of ratios; of an even number, the geometric mean of the two in the middle.

    So the median of the inverse ratios is the inverse of the median.
    """
    _check(ratios)
    return math.sqrt(statistics.median_low(ratios) * statistics.median_high(ratios))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and third quartile, interpolated between values as `numpy.quantile` does."""
    _check(values)
    if len(values) == 1:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the bootstrap percentile interval of the median.

    The ends are two of the values: the innermost ones such that the median of a draw lies at or beyond an end with no
    more than the tail's probability. For 21 values and 95 % they are the 6th and the 16th, as in the sign test, which
    hold the true median of independent rounds in 97 % of all cases; between the 7th and the 15th it would be 92 %.

    Args:
        values: At least one number, in any order.
        confidence: Between 0 and 1.

    Raises:
        MeasureError: There are no values, or `confidence` is not between 0 and 1.
    """
    _check(values)
    if not 0 < confidence < 1:
        raise MeasureError("this is no confidence", expected="a number between 0 and 1", got=confidence)
    ordered = sorted(values)
    place = _lower_place(len(ordered), (1 - confidence) / 2)
    return ordered[place], ordered[-1 - place]


@lru_cache(maxsize=256)
def _lower_place(n: int, tail: float) -> int:
    """Return the largest place, from 0, such that a draw's median is at most the value there with at most `tail`.

    For an even n the draw's median is here the lower one of the two values in its middle.
    """
    needed = (n + 1) // 2
    low, high = 0, (n - 1) // 2
    while low < high:
        place = (low + high + 1) // 2
        if _at_least(needed, n, (place + 1) / n) <= tail:
            low = place
        else:
            high = place - 1
    return low


def _at_least(needed: int, n: int, chance: float) -> float:
    """Return the probability of `needed` or more successes in n trials: a binomial tail, in logarithms."""
    if chance >= 1:
        return 1.0
    success, failure = math.log(chance), math.log1p(-chance)
    whole = math.lgamma(n + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * success + (n - k) * failure)
        for k in range(needed, n + 1)
    )


def _check(values: Sequence[float]) -> None:
    if not values:
        raise MeasureError("there is nothing to take a median of", expected="at least one round", got="none")
