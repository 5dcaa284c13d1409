"""Figure of `mlhood bench nmp --sweep`: the speedup of networks by the number of tilelets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from mlhood.errors import CompilerError
from mlhood.measure.units import times
from mlhood.plotting.alt_text import listing, set_alt_text
from mlhood.plotting.diagram import BLUE, ORANGE, SKY, VERMILION

_STYLES = ((BLUE, "o"), (VERMILION, "s"), (ORANGE, "^"), (SKY, "D"))


def scaling(networks: Mapping[str, Sequence[tuple[int, int]]]) -> Figure:
    """Draw how much faster networks are on more tilelets, beside the line of a machine that scales ideally.

    Args:
        networks: By name: numbers of tilelets, ascending, and the cycles on as many.

    Raises:
        CompilerError: There is nothing to draw.
    """
    if not networks or not all(networks.values()):
        raise CompilerError("there is no scaling to draw", expected="one or more networks", got=len(networks))
    figure, axes = plt.subplots(figsize=(7, 4.2), dpi=90, layout="constrained")
    counts = sorted({units for points in networks.values() for units, _ in points})
    axes.plot(counts, [n / counts[0] for n in counts], color="black", linestyle="--", linewidth=1, label="ideal")
    ends = {}
    for (name, points), (colour, marker) in zip(networks.items(), _STYLES * len(networks), strict=False):
        speedups = [points[0][1] / cycles for _, cycles in points]
        axes.plot([n for n, _ in points], speedups, color=colour, marker=marker, label=name)
        ends[name] = times(speedups[-1])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    axes.set_xticks(counts)
    axes.set(xlabel="tilelets", ylabel=f"speedup over {counts[0]} tilelet{'s' * (counts[0] > 1)}")
    axes.grid(alpha=0.3)
    axes.legend()
    return set_alt_text(
        figure,
        f"Speedup by the number of tilelets, {counts[0]} to {counts[-1]}, both axes logarithmic.",
        f"With {counts[-1]} tilelets: {listing(ends)}; ideal would be {times(counts[-1] / counts[0])}.",
    )
