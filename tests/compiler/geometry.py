"""What holds for every drawing: nothing overlaps, wires run down and past the boxes, words stay in their boxes."""

from itertools import combinations

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mlhood.graph_drawing.drawing import UNHINTED
from mlhood.graph_drawing.placement import PlacedBox, PlacedText, Placement
from mlhood.graph_drawing.render import MARGIN, PIXELS_AN_INCH, line_path

SLACK = 0.05  # pixels by which sums of lengths may be rounded


def rectangle(one: PlacedBox | PlacedText) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom."""
    if isinstance(one, PlacedBox):
        return one.left, one.top, one.left + one.width, one.top + one.height
    width, height = max(line.width for line in one.lines), sum(line.height for line in one.lines)
    return one.left, one.top, one.left + width, one.top + height


def check(placement: Placement, *, downwards: bool = True) -> None:
    """Check boxes, words and wires; `downwards` holds where nothing is cut into columns."""
    check_no_overlap(placement)
    check_wires(placement, downwards)


def check_no_overlap(placement: Placement) -> None:
    things = [(one, rectangle(one)) for one in (*placement.boxes, *placement.texts)]
    for (one, first), (other, second) in combinations(things, 2):
        aside = first[2] <= second[0] + SLACK or second[2] <= first[0] + SLACK
        apart = first[3] <= second[1] + SLACK or second[3] <= first[1] + SLACK
        assert aside or apart, (one, other)
    for one, (left, top, right, bottom) in things:
        assert min(left, top) >= -SLACK, one
        assert right <= placement.width + SLACK, one
        assert bottom <= placement.height + SLACK, one


def check_wires(placement: Placement, downwards: bool) -> None:
    place_of = {id(placed.box): rectangle(placed) for placed in placement.boxes}
    boxes = np.array([rectangle(placed) for placed in placement.boxes])
    for route in placement.routes:
        source = place_of[id(route.source)]
        (x, y), (end_x, end_y) = route.points[0], route.points[-1]
        assert source[0] < x < source[2], route
        assert abs(y - source[3]) < SLACK, route
        if route.target is not None:
            target = place_of[id(route.target)]
            assert target[0] < end_x < target[2], route
            assert abs(end_y - target[1]) < SLACK, route
        points = sampled(route.points)
        if downwards:
            assert (np.diff(points[:, 1]) >= -SLACK).all(), route
        inside = (points[:, None] > boxes[None, :, :2] + 0.5) & (points[:, None] < boxes[None, :, 2:] - 0.5)
        assert not inside.all(-1).any(), route


def sampled(points) -> np.ndarray:
    """Return points along a wire as it is painted."""
    curves = [curve(np.linspace(0, 1, 25)) for curve, _ in line_path(list(points)).iter_bezier()]
    return np.concatenate(curves)


def check_words(drawing) -> None:
    """Check with the renderer itself that words do not leave the box they begin in, nor the picture."""
    figure = drawing.figure()
    figure.set_dpi(PIXELS_AN_INCH)
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
        assert left >= (-MARGIN if text.get_color() == "white" else -1), text  # badges reach into the margin
        assert right <= figure.bbox.width - 2 * MARGIN + 1, text
        x, y = text.get_position()
        for box in boxes:
            if box[0] <= x <= box[2] and box[1] <= y <= box[3] and text.get_color() != "white":
                assert box[1] - 1 <= top < bottom <= box[3] + 1, (text, box)
                assert right <= box[2] + 1, (text, box)
