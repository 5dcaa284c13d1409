"""The roofline: what a kernel can reach at most, from how many operations it does for each byte it moves.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlhood.errors import MeasureError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """A kernel in the picture.

    Args:
        name: What its label says.
        intensity: Operations per byte moved.
        rate: Operations per second that were measured.
        series: Points of one series share a marker.
    """

    name: str
    intensity: float
    rate: float
    series: str = ""

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value > 0 for value in (self.intensity, self.rate)):
            raise MeasureError(
                "this point has no place on a roofline",
                where=self.name,
                expected="positive, finite intensity and rate",
                got=f"{self.intensity}, {self.rate}",
            )


@dataclass(frozen=True)
class Roofline:
    """A machine's ceilings.

    Args:
        peak: Operations per second.
        bandwidths: Bytes per second by the level that data come from, such as `L2` or `memory`.
    """

    peak: float
    bandwidths: Mapping[str, float]

    def __post_init__(self) -> None:
        given = {"peak": self.peak, **self.bandwidths}
        wrong = {name: value for name, value in given.items() if not (math.isfinite(value) and value > 0)}
        if wrong or not self.bandwidths:
            raise MeasureError(
                "a roofline has a peak and at least one bandwidth",
                expected="positive, finite numbers per second",
                got=wrong or "no bandwidth",
            )

    def attainable(self, intensity: float, level: str | None = None) -> float:
        """Return operations per second: what the bandwidth feeds, or the peak if that is less.

        Args:
            intensity: Operations per byte that comes from the level.
            level: A key of `bandwidths`; the slowest if left out.

        Raises:
            MeasureError: There is no such level.
        """
        return min(self.peak, intensity * self._bandwidth(level))

    def ridge(self, level: str | None = None) -> float:
        """Return the intensity from which on the peak is the limit, and not the bandwidth.

        Raises:
            MeasureError: There is no such level.
        """
        return self.peak / self._bandwidth(level)

    def _bandwidth(self, level: str | None) -> float:
        if level is None:
            return min(self.bandwidths.values())
        if level not in self.bandwidths:
            raise MeasureError("this level was not measured", expected=list(self.bandwidths), got=repr(level))
        return self.bandwidths[level]

    def plot(self, *points: Point, title: str = "Roofline") -> Figure:
        """Draw the roof, with the kernels under it."""
        from mlhood.measure.roofline_figure import roofline

        return roofline(self, points, title)
