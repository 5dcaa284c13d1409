"""The figures show what the nest does and counts."""

from __future__ import annotations

import numpy as np

from mlhood.dataflow.nest import gemm, nest
from mlhood.dataflow.nest.nest_figures import iteration_space, reuse

PLANE = nest("y[i] += a[i, j] * x[j]", i=6, j=6)


def test_the_path_follows_the_schedule():
    tiled = PLANE.tile(i=2, j=3)
    figure = iteration_space({"rows": PLANE, "tiles": tiled})
    for axes, drawn in zip(figure.axes, (PLANE, tiled), strict=True):
        path = max(axes.lines, key=lambda line: len(line.get_xdata()))
        np.testing.assert_array_equal(np.stack([path.get_ydata(), path.get_xdata()], 1), drawn.visits())
        assert [text.get_text() for text in axes.texts if text.get_text()] == [str(number) for number in range(36)]
    boundaries = [line for line in figure.axes[1].lines if line.get_linestyle() == "--"]
    assert sorted((min(line.get_xdata()), min(line.get_ydata())) for line in boundaries) == [
        (0, 1.5),
        (0, 3.5),
        (2.5, 0),
    ]
    assert "i_o, j_o, i_i, j_i" in figure.axes[1].get_title()


def test_bars_show_the_counts():
    plain, tiled = gemm(8, 8, 8), gemm(8, 8, 8).split("i", 4).reorder("i_o", "k", "j", "i_i")
    counts = {"plain": plain.count(), "tiled": tiled.count()}
    figure = reuse(counts)
    for axes, counted in zip(figure.axes, counts.values(), strict=True):
        expected = [counted.reuse(name, level.inside) for name in "ABC" for level in counted.levels]
        assert [bar.get_width() for container in axes.containers for bar in container] == expected
    assert [text.get_text() for text in figure.legends[0].texts] == ["A", "B", "C"]
