"""The figures show the nest and their data; their labels do not overlap."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from mlhood.dataflow.slicing import tile_figures, traffic_figures
from mlhood.dataflow.slicing.analysis import needs
from mlhood.dataflow.slicing.caches import declared
from mlhood.dataflow.slicing.problem import Problem, Slicing
from mlhood.dataflow.slicing.traffic import Traffic, lines_into, predict
from mlhood.dataflow.tables import ORDERS
from mlhood.errors import MeasureError, SlicingError
from mlhood.measure.measurement import Measurement
from mlhood.measure.table import Table
from mlhood.plotting.diagram import LIGHT_YELLOW
from tests.plotting.texts import check_texts, strings, texts_of

LARGE = Problem(64, 64, (3, 3), (56, 56), 6, 16)
ROWS = Problem(2048, 512, (3, 3), (7, 7), 6, 16, rows=7)
SMALL = Problem(5, 3, (1, 1), (2, 2), 6, 16)
HUGE = Problem(2048, 2048, (7, 7), (448, 448), 6, 4)
CACHES = declared("32KiB,1MiB,4MiB")
TILES = ((4, 4, 16), (16, 2, 4), (64, 1, 1))
SLICINGS = [Slicing(order, *sizes) for order in ORDERS for sizes in TILES]
NEEDS = {str(slicing): needs(LARGE, slicing.order, *slicing.tiles) for slicing in SLICINGS}
TRAFFIC = {str(sizes): {order: predict(LARGE, Slicing(order, *sizes), CACHES) for order in ORDERS} for sizes in TILES}


def table(*seconds, run="one"):
    """A row for each pair of times, with a spread of some percent over the rounds."""
    filled = Table("P4.slicing", tuple(f"row {i}" for i in range(len(seconds))), ("WS", "IS"))
    for row, pair in zip(filled.rows, seconds, strict=True):
        for column, time in zip(filled.columns, pair, strict=True):
            filled[row, column] = Measurement(tuple(time * (1 + part / 100) for part in range(-4, 5)), run=run)
    return filled


def text_of(figure):
    return "\n".join(strings(figure))


FIGURES = {
    "tiles": lambda: tile_figures.tiles(LARGE, Slicing("WS", 32, 65, 4)),
    "tiles, by rows": lambda: tile_figures.tiles(ROWS, Slicing("IS", 40, 128, 14)),
    "tiles, all slices shown": lambda: tile_figures.tiles(LARGE, Slicing("IS", 10, 3, 523)),
    "tiles, large numbers": lambda: tile_figures.tiles(HUGE, Slicing("WS", 1024, 30_000, 500)),
    "tiles, one": lambda: tile_figures.tiles(SMALL, Slicing("IS", 3, 1, 1)),
    "orders": lambda: tile_figures.orders(8, 6, 3, 4),
    "levels": lambda: traffic_figures.levels(NEEDS, CACHES.rooms),
    "levels, no limits": lambda: traffic_figures.levels({"IS (1, 1, 1)": (800, 900, 1000)}, (math.inf, 900, math.inf)),
    "traffic": lambda: traffic_figures.traffic(TRAFFIC, line=64),
    "traffic, one": lambda: traffic_figures.traffic(
        {"C1": {order: Traffic(1, 1, 1, 1, 1) for order in ORDERS}}, line=64
    ),
    "bounds": lambda: traffic_figures.bounds({"WS": (16.8, 20.9, 18.4), "IS": (16.8, 33.4, 25.0)}),
    "waits": lambda: traffic_figures.waits(reads=4, reading=1, multiplying=3),
    "bounds, one": lambda: traffic_figures.bounds({"WS": (0.5, 0.6, 2.5)}),
    "times": lambda: traffic_figures.times(table((0.012, 0.01), (0.01, 0.01), (0.015, 0.02))),
    "times, far apart": lambda: traffic_figures.times(table((0.001, 0.001), (0.02, 0.03))),
    "times, one": lambda: traffic_figures.times(table((0.001, 0.001))),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_tiles_shows_counts_and_bytes():
    text = text_of(tile_figures.tiles(LARGE, Slicing("WS", 32, 65, 4)))
    sizes = ("64·3·3 = 576", "56·56 = 3,136", "= 6,912 bytes", "= 18,432 bytes", "= 384 bytes")
    for part in (*sizes, "one of 2 slices", "523 in a slice", "4 in a slice", "4 × 523 = 2,092"):
        assert part in text
    assert "streamed;\nL2 holds k2 = 65" in text
    assert "stationary in L1;\nL3 holds k3 = 4" in text
    text = text_of(tile_figures.tiles(LARGE, Slicing("IS", 64, 2, 30)))
    assert "the only slice" in text
    assert "stationary in L1;\nL3 holds k3 = 30" in text
    assert "streamed;\nL2 holds k2 = 2" in text


def test_the_highlighted_tiles_are_aligned():
    patches = tile_figures.tiles(ROWS, Slicing("IS", 40, 128, 14)).axes[0].patches
    heavy = [patch for patch in patches if patch.get_linewidth() > 2]
    weight, column, result = (patch for patch in heavy if isinstance(patch, Rectangle))
    assert len({patch.get_hatch() for patch in heavy}) == 3
    assert (weight.get_y(), weight.get_height()) == pytest.approx((result.get_y(), result.get_height()))
    assert (column.get_x(), column.get_width()) == pytest.approx((result.get_x(), result.get_width()))
    assert weight.get_width() == pytest.approx(column.get_height())  # both are k1 channels deep


@pytest.mark.parametrize(("inputs", "weights", "k2", "k3"), [(5, 4, 3, 2), (2, 6, 1, 2), (3, 3, 9, 9)])
def test_numbers_are_the_visits_of_the_nest(inputs, weights, k2, k3):
    figure = tile_figures.orders(inputs, weights, k2, k3)
    numbers = [text for text in texts_of(figure) if text.get_text().isdigit() and text.get_zorder() == 4]
    size = inputs * weights
    for panel, order in ((numbers[:size], "IS"), (numbers[size:], "WS")):
        columns, rows = (sorted({round(text.get_position()[axis], 6) for text in panel}) for axis in (0, 1))
        drawn = np.zeros((weights, inputs), int)
        for text in panel:
            x, y = (round(coordinate, 6) for coordinate in text.get_position())
            drawn[weights - 1 - rows.index(y), columns.index(x)] = int(text.get_text())
        # each pair's position by the loops, from the outermost in: groups, then tiles
        w, i = np.indices((weights, inputs)).reshape(2, -1)
        s, p = (i, w) if order == "IS" else (w, i)
        ranks = np.lexsort((p, s, p // k2, s // k3))
        expected = np.empty(size, int)
        expected[ranks] = np.arange(1, size + 1)
        np.testing.assert_array_equal(drawn, expected.reshape(weights, inputs))


def test_groups_have_boundaries_and_the_first_streamed_group_is_marked():
    axes = tile_figures.orders(8, 6, 3, 4).axes[0]
    lines = [line for line in axes.lines if line.get_linewidth() > 1.5]
    heavy, dashed = ([line for line in lines if (line.get_linestyle() == "-") is solid] for solid in (True, False))
    assert (len(heavy), len(dashed)) == (1 + 1, 1 + 2)
    marked = [patch for patch in axes.patches if patch.get_facecolor() == to_rgba(LIGHT_YELLOW)]
    assert len(marked) == 3 + 3


def test_needs_above_the_capacity_are_marked():
    figure = traffic_figures.levels(NEEDS, CACHES.rooms)
    bars = [bar for container in figure.axes[0].containers for bar in container]
    widths = [sizes[level] / CACHES.rooms[level] for level in range(3) for sizes in NEEDS.values()]
    assert [bar.get_width() for bar in bars] == widths
    too_large = [sizes[level] > CACHES.rooms[level] for level in range(3) for sizes in NEEDS.values()]
    assert 0 < sum(too_large) < len(too_large)
    assert [bar.get_hatch() == "xx" for bar in bars] == too_large
    assert text_of(figure).count("too large") == sum(too_large)
    assert "L1: the line is the limit, 28.8 KiB" in text_of(figure)
    assert [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_linewidth() > 2] == [1, 1, 1]


def test_a_level_without_a_limit_has_no_line():
    figure = traffic_figures.levels({"a": (800, 900, 1000)}, (math.inf, 900, math.inf))
    assert len(figure.axes[0].lines) == 1
    shown = "\n".join(strings(figure))
    assert shown.count("no limit") == 2
    assert "too large" not in shown


def test_traffic_shows_the_lines_loaded_into_each_level():
    figure = traffic_figures.traffic(TRAFFIC, line=64)
    for axes, capacity in zip(figure.axes, CACHES.rooms, strict=True):
        for container, order in zip(axes.containers, ORDERS, strict=True):
            lines = [lines_into(LARGE, order, *sizes, capacity, 64) for sizes in TILES]
            assert container.get_label() == order
            assert [bar.get_width() for bar in container] == pytest.approx([count * 64 / 2**20 for count in lines])
            assert len({bar.get_hatch() for bar in container}) == 1
    wider = traffic_figures.traffic(TRAFFIC, line=128)
    first, second = (drawn.axes[0].containers[0][0].get_width() for drawn in (figure, wider))
    assert second == pytest.approx(2 * first)


def test_times_shows_medians_and_their_ratio():
    measured = table((0.012, 0.01), (0.01, 0.01), (0.015, 0.02))
    figure = traffic_figures.times(measured)
    text = text_of(figure)
    assert "1.20 [1.20, 1.20]" in text
    assert "1.00 [1.00, 1.00]" in text
    assert "0.75 [0.75, 0.75]" in text
    for container, order in zip(figure.axes[0].containers, ORDERS, strict=True):
        line, _, (bars,) = container.lines
        assert container.get_label() == order
        assert list(line.get_xdata()) == pytest.approx([1e3 * measured[row, order].median for row in measured.rows])
        ends = [(low, high) for (low, _), (high, _) in bars.get_segments()]
        expected = [tuple(1e3 * end for end in measured[row, order].interval) for row in measured.rows]
        np.testing.assert_allclose(ends, expected)


def test_tile_sizes_out_of_range_are_rejected():
    with pytest.raises(SlicingError, match="out of range"):
        tile_figures.tiles(LARGE, Slicing("IS", 65, 1, 1))
    assert plt.get_fignums() == []


def test_an_empty_cell_is_named():
    with pytest.raises(MeasureError, match="empty"):
        traffic_figures.times(Table("P4.slicing", ("a",), ("WS", "IS")))
    assert plt.get_fignums() == []
