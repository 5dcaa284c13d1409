"""Invariants of every drawing: nothing overlaps, wires run downwards and past the boxes, text stays in its box."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mlhood.graph_drawing.drawing import UNHINTED
from mlhood.graph_drawing.layout import PlacedBox, PlacedText, Placement
from mlhood.graph_drawing.render import MARGIN, PIXELS_PER_INCH, line_path

TOLERANCE = 0.05  # pixels, for rounding of sums of lengths


def rectangle(item: PlacedBox | PlacedText) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom."""
    if isinstance(item, PlacedBox):
        return item.left, item.top, item.left + item.width, item.top + item.height
    width, height = max(line.width for line in item.lines), sum(line.height for line in item.lines)
    return item.left, item.top, item.left + width, item.top + height


def check(placement: Placement) -> None:
    """Check boxes, text and wires."""
    check_no_overlap(placement)
    check_wires(placement)


def check_no_overlap(placement: Placement) -> None:
    items = [(item, rectangle(item)) for item in (*placement.boxes, *placement.texts)]
    for (first, a), (second, b) in combinations(items, 2):
        beside = a[2] <= b[0] + TOLERANCE or b[2] <= a[0] + TOLERANCE
        above = a[3] <= b[1] + TOLERANCE or b[3] <= a[1] + TOLERANCE
        assert beside or above, (first, second)
    for item, (left, top, right, bottom) in items:
        assert min(left, top) >= -TOLERANCE, item
        assert right <= placement.width + TOLERANCE, item
        assert bottom <= placement.height + TOLERANCE, item


def check_wires(placement: Placement) -> None:
    rectangle_of = {id(placed.box): rectangle(placed) for placed in placement.boxes}
    boxes = np.array([rectangle(placed) for placed in placement.boxes])
    for route in placement.routes:
        source = rectangle_of[id(route.source)]
        (x, y), (end_x, end_y) = route.points[0], route.points[-1]
        assert source[0] < x < source[2], route
        assert abs(y - source[3]) < TOLERANCE, route
        if route.target is not None:
            target = rectangle_of[id(route.target)]
            assert target[0] < end_x < target[2], route
            assert abs(end_y - target[1]) < TOLERANCE, route
        points = sampled(route.points)
        assert (np.diff(points[:, 1]) >= -TOLERANCE).all(), route
        inside = (points[:, None] > boxes[None, :, :2] + 0.5) & (points[:, None] < boxes[None, :, 2:] - 0.5)
        assert not inside.all(-1).any(), route


def sampled(points) -> np.ndarray:
    """Return points along a wire as it is drawn."""
    curves = [curve(np.linspace(0, 1, 25)) for curve, _ in line_path(list(points)).iter_bezier()]
    return np.concatenate(curves)


def check_words(drawing) -> None:
    """Check with matplotlib's renderer that text stays in the box in which it begins, and in the picture."""
    figure = drawing.figure()
    figure.set_dpi(PIXELS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    height = figure.bbox.height
    boxes = [rectangle(placed) for placed in drawing.placement.boxes]
    for text in figure.axes[0].texts:
        if not text.get_text():
            continue
        with mpl.rc_context(UNHINTED):
            extent = text.get_window_extent(renderer)
        left, right = extent.x0 - MARGIN, extent.x1 - MARGIN
        top, bottom = height - extent.y1 - MARGIN, height - extent.y0 - MARGIN
        assert left >= (-MARGIN if text.get_color() == "white" else -1), text  # badges extend into the margin
        assert right <= figure.bbox.width - 2 * MARGIN + 1, text
        x, y = text.get_position()
        for box in boxes:
            if box[0] <= x <= box[2] and box[1] <= y <= box[3] and text.get_color() != "white":
                assert box[1] - 1 <= top < bottom <= box[3] + 1, (text, box)
                assert right <= box[2] + 1, (text, box)
