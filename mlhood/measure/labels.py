"""Labels that keep clear of one another, of what is marked, and of the edge of the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_DIRECTIONS = (45, 0, 90, 135, 315, 180, 270, 225, 20, 70, 110, 160, 340, 290, 250, 200)
_DISTANCES = (9, 16, 26, 38, 52, 70, 92, 120)  # points
_MARK = 5.0


def label(axes: Axes, anchors: Sequence[tuple[float, float]], texts: Sequence[str], **font: Any) -> list[Text]:
    """Write a text beside each anchor, as near to it as there is room, with a line to it where that is far.

    Limits, scales and size of the figure have to be set before.

    Args:
        axes: Where.
        anchors: In data coordinates.
        texts: As many.
        font: Properties of the texts.
    """
    figure = axes.get_figure(root=True)
    if figure is None:
        return []
    figure.draw_without_rendering()
    dots = figure.dpi / 72
    points = [axes.transData.transform(anchor) for anchor in anchors]
    taken = [_around(x, y, _MARK * dots) for x, y in points]
    taken += [text.get_window_extent() for text in axes.texts]
    written = []
    for anchor, point, text in zip(anchors, points, texts, strict=True):
        made = axes.annotate(text, anchor, (0, 0), textcoords="offset points", annotation_clip=False, **font)
        taken.append(_put(made, axes.get_window_extent(), tuple(point), taken, dots))
        written.append(made)
    return written


def _put(made: Any, room: Bbox, point: tuple[float, float], taken: Sequence[Bbox], dots: float) -> Bbox:
    """Move the text to the nearest place that is free, or to where it covers least; return its box."""
    size = Text.get_window_extent(made)  # without its arrow
    best = None
    for distance in _DISTANCES:
        for direction in _DIRECTIONS:
            box = _box(point, size.width, size.height, distance * dots, math.radians(direction))
            covered = _covered(box, room, taken)
            if best is None or covered < best[0]:
                best = covered, distance, box
            if covered == 0:
                break
        if best is not None and best[0] == 0:
            break
    _, distance, box = best or (0, 0, size)
    made.set_position(((box.x0 - point[0]) / dots, (box.y0 - point[1]) / dots))
    if distance > _DISTANCES[1]:
        _lead(made, point, box)
    return box


def _lead(made: Any, point: tuple[float, float], box: Bbox) -> None:
    near = (min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1))
    axes = made.axes
    ends = axes.transData.inverted().transform([point, near])
    axes.plot(ends[:, 0], ends[:, 1], color="#666666", lw=0.6, zorder=1)


def _box(point: tuple[float, float], width: float, height: float, distance: float, angle: float) -> Bbox:
    """Return the box whose middle lies in this direction, and whose edge is this far from the point."""
    x = point[0] + math.cos(angle) * (distance + width / 2)
    y = point[1] + math.sin(angle) * (distance + height / 2)
    return Bbox.from_bounds(x - width / 2, y - height / 2, width, height)


def _covered(box: Bbox, room: Bbox, taken: Sequence[Bbox]) -> float:
    """Return the area that the box shares with what is taken, or that lies outside the room."""
    inside = Bbox.intersection(box, room)
    outside = box.width * box.height - (inside.width * inside.height if inside else 0.0)
    shared = [common.width * common.height for other in taken if (common := Bbox.intersection(box, other))]
    return outside + sum(shared) if outside > 1e-6 else sum(shared)


def _around(x: float, y: float, radius: float) -> Bbox:
    return Bbox.from_bounds(x - radius, y - radius, 2 * radius, 2 * radius)
