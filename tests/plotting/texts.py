"""What every figure has to fulfil: its texts lie inside of it and do not overlap."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_of(figure: Figure) -> list[Text]:
    """Return the texts that are drawn."""
    figure.draw_without_rendering()
    hidden = {id(label) for axes in figure.axes for label in _labels_that_are_not_drawn(axes)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in texts if id(text) not in hidden]


def strings(figure: Figure) -> list[str]:
    return [text.get_text() for text in texts_of(figure)]


def check_texts(figure: Figure) -> None:
    """Check that the texts can be read."""
    texts = [(text.get_text(), Text.get_window_extent(text)) for text in texts_of(figure)]  # without arrows
    boxes = [(text, box) for text, box in texts if box.width and box.height]
    assert len(boxes) > 2
    assert [(a, b) for (a, box), (b, other) in combinations(boxes, 2) if _overlap(box, other) > 4] == []
    wide, high = figure.canvas.get_width_height()
    assert [text for text, box in boxes if box.x0 < -1 or box.y0 < -1 or box.x1 > wide + 1 or box.y1 > high + 1] == []


def _overlap(box, other) -> float:
    """Return the area in pixels that two boxes share, less a margin for the empty border of letters."""
    width = min(box.x1, other.x1) - max(box.x0, other.x0) - 1
    height = min(box.y1, other.y1) - max(box.y0, other.y0) - 3
    return max(width, 0) * max(height, 0)


def _labels_that_are_not_drawn(axes: Axes) -> Iterator[Text]:
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not axes.axison or not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)
