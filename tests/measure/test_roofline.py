"""The roofline's arithmetic, and a figure without overlapping labels."""

import itertools
import random

import matplotlib.pyplot as plt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from mlhood.measure.roofline import Point, Roofline

ROOF = Roofline(265e9, {"L1": 734e9, "L2": 261e9, "L3": 129e9, "memory": 53.8e9})


@given(st.floats(1e-3, 1e4), st.sampled_from([*ROOF.bandwidths, None]))
def test_the_roof_is_the_lower_of_both_limits(intensity, level):
    attainable = ROOF.attainable(intensity, level)
    assert attainable == min(ROOF.peak, intensity * ROOF.bandwidths[level or "memory"])
    assert (attainable < ROOF.peak) == (intensity < ROOF.ridge(level)) or intensity == pytest.approx(ROOF.ridge(level))


def points(seed, count=10):
    draw = random.Random(seed)
    return [
        Point(f"C{i // 2 + 1} {name}", 12 * 1.4 ** (i // 2) * draw.uniform(0.8, 1.2), share * 265e9, name)
        for i in range(count)
        for name, share in [[("no-BLAS", draw.uniform(0.05, 0.2)), ("im2col + BLAS", draw.uniform(0.4, 0.6))][i % 2]]
    ]


def label_boxes(figure) -> list[Bbox]:
    figure.draw_without_rendering()
    axes = figure.axes[0]
    return [Text.get_window_extent(text) for text in axes.texts]


@pytest.mark.parametrize("seed", range(6))
def test_labels_of_ten_points_do_not_overlap(seed):
    kernels = points(seed)
    figure = ROOF.plot(*kernels)
    boxes = label_boxes(figure)
    axes = figure.axes[0]
    window = axes.get_window_extent()
    markers = [axes.transData.transform((point.intensity, point.rate / 1e9)) for point in kernels]
    assert len(boxes) == 11
    assert not [1 for a, b in itertools.combinations(boxes, 2) if Bbox.intersection(a, b) is not None]
    assert not [1 for box in boxes for marker in markers if box.contains(*marker)]
    assert all(window.x0 <= box.x0 and box.x1 <= window.x1 for box in boxes)
    assert all(window.y0 <= box.y0 and box.y1 <= window.y1 for box in boxes)


def test_the_figure_is_readable_without_colour():
    figure = ROOF.plot(*points(0), title="P3")
    axes = figure.axes[0]
    roofs = [line for line in axes.lines if "B/s" in str(line.get_label())]
    series = [line for line in axes.lines if line.get_label() in ("no-BLAS", "im2col + BLAS")]
    names = {text.get_text() for text in figure.legends[0].get_texts()}
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in roofs}) == 4
    assert len({line.get_marker() for line in series}) == 2
    assert {"memory: 53.8 GB/s", "no-BLAS"} <= names
    assert axes.get_title() == "P3"


def test_no_points_and_coinciding_points_are_drawn():
    plt.close(ROOF.plot())
    crowd = [Point(f"layer {i}", 10.0, 1e11) for i in range(12)]
    figure = ROOF.plot(*crowd)
    assert len(label_boxes(figure)) == 13
