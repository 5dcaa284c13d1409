"""The roofline model: the performance that a kernel can attain, given the operations it does per byte it moves.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlhood.measure.units import rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Point:
    """A kernel in the figure.

    Args:
        name: Its label.
        intensity: Operations per byte moved.
        rate: Measured operations per second.
        series: Points of one series share a marker.
    """

    name: str
    intensity: float
    rate: float
    series: str = ""


@dataclass(frozen=True)
class Roofline:
    """A machine's ceilings.

    Args:
        peak: Operations per second.
        bandwidths: Bytes per second by memory level, such as `L2` or `memory`.
    """

    peak: float
    bandwidths: Mapping[str, float]

    def attainable(self, intensity: float, level: str | None = None) -> float:
        """Return the attainable operations per second: min(peak, intensity * bandwidth).

        Args:
            intensity: Operations per byte moved from the level.
            level: A key of `bandwidths`; the slowest by default.
        """
        return min(self.peak, intensity * (self.bandwidths[level] if level else min(self.bandwidths.values())))

    def ridge(self, level: str | None = None) -> float:
        """Return the ridge point: the intensity above which a kernel is compute bound."""
        return self.peak / (self.bandwidths[level] if level else min(self.bandwidths.values()))

    def plot(self, *points: Point, title: str = "Roofline") -> Figure:
        """Draw one roof per level and the kernels under it, on two logarithmic axes.

        Args:
            points: Kernels, each labelled with its name and its share of what the slowest level lets it attain.
            title: Title of the figure.
        """
        import matplotlib.pyplot as plt

        from mlhood.plotting.alt_text import listing, set_alt_text
        from mlhood.plotting.labels import label

        figure, axes = plt.subplots(figsize=(6.6, 5.6), dpi=90, layout="constrained")
        axes.set(xscale="log", yscale="log", title=title)
        axes.set(xlabel="arithmetic intensity [FLOP/byte]", ylabel="performance [GFLOP/s]")
        intensities = [*map(self.ridge, self.bandwidths), *(point.intensity for point in points)]
        left, right = min(intensities) / 4, max(intensities) * 4
        lowest = min([self.attainable(left), *(point.rate for point in points)])
        axes.set(xlim=(left, right), ylim=(lowest / 2e9, 2.2 * self.peak / 1e9))
        axes.grid(visible=True, which="major", color="#dddddd", lw=0.6)
        _plot_roofs(axes, self, left, right)
        _plot_points(axes, points)
        figure.legend(loc="outside lower center", ncols=2, fontsize=9.5, handlelength=3.5)
        names = [f"{point.name} ({point.rate / self.attainable(point.intensity):.1%})" for point in points]
        label(axes, [(point.intensity, point.rate / 1e9) for point in points], names, fontsize=9)
        roofs = listing((name, rate(bandwidth, "B/s")) for name, bandwidth in self.bandwidths.items())
        kernels = "; ".join(f"{point.name} {rate(point.rate)} at {point.intensity:.3g} FLOP/byte" for point in points)
        return set_alt_text(
            figure, f"Roofline: peak {rate(self.peak)}, {roofs}.", f"Kernels: {kernels}." if points else ""
        )


def _plot_roofs(axes: Axes, roof: Roofline, left: float, right: float) -> None:
    """Draw the slope of each level up to the peak, and the peak itself."""
    import numpy as np

    from mlhood.plotting.diagram import DARK, DASHES

    fastest_first = sorted(roof.bandwidths.items(), key=lambda item: -item[1])
    for i, (name, bandwidth) in enumerate(fastest_first):
        x = np.array([left, roof.ridge(name)])
        text = f"{name}: {rate(bandwidth, 'B/s')}"
        axes.plot(x, np.minimum(bandwidth * x, roof.peak) / 1e9, ls=DASHES[i % 6], color=DARK, lw=1.5, label=text)
    axes.plot([roof.ridge(fastest_first[0][0]), right], [roof.peak / 1e9] * 2, color=DARK, lw=2.2)
    text = f"peak {rate(roof.peak)}"
    axes.annotate(text, (right, roof.peak / 1e9), (-4, 4), textcoords="offset points", ha="right", fontsize=9)


def _plot_points(axes: Axes, points: Sequence[Point]) -> None:
    from mlhood.plotting.diagram import LINE_COLOURS, MARKERS

    for i, series in enumerate(dict.fromkeys(point.series for point in points)):
        members = [point for point in points if point.series == series]
        x, y = [point.intensity for point in members], [point.rate / 1e9 for point in members]
        line = axes.plot(x, y, ls="", ms=7, mec="black", mew=0.8, zorder=3, label=series or "_nolegend_")[0]
        line.set(marker=MARKERS[i % 6], color=LINE_COLOURS[i % 6], markeredgecolor="black")
