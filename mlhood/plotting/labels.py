"""Labels that keep clear of one another, of what is marked, and of the edge of the axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_DIRECTIONS = (45, 0, 90, 135, 315, 180, 270, 225, 20, 70, 110, 160, 340, 290, 250, 200, 80, 100, 260, 280)
_DISTANCES = (9, 13, 17, 22, 28, 35, 43, 52, 70, 92, 120)  # points
_FAR = 17
_MARK = 5.0
_STEPS = 150
_CROSSING = 20.0
_NOTHING = 1e-6
Point = tuple[float, float]


def label(axes: Axes, anchors: Sequence[tuple[float, float]], texts: Sequence[str], **font: Any) -> Sequence[Text]:
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
    points = [(float(x), float(y)) for x, y in axes.transData.transform(list(anchors))] if anchors else []
    taken = [_around(point, _MARK * dots) for point in points]
    taken += [text.get_window_extent() for text in axes.texts]
    taken += _along(axes, dots)
    written = [
        axes.annotate(text, anchor, (0, 0), textcoords="offset points", annotation_clip=False, **font)
        for anchor, text in zip(anchors, texts, strict=True)
    ]
    # from the right: a text has less room to the right of its point than to the left
    for point, made in sorted(zip(points, written, strict=True), key=lambda pair: -pair[0][0]):
        taken.append(_put(made, axes.get_window_extent(), point, taken, dots))
    return written


def _put(made: Any, room: Bbox, point: Point, taken: Sequence[Bbox], dots: float) -> Bbox:
    """Move the text to the nearest place that is free, or to where it covers least; return its box."""
    size = Text.get_window_extent(made)
    corners = np.array([box.extents for box in taken])
    own = np.array([box.contains(*point) for box in taken])
    best = math.inf, size, 0.0
    for distance, direction in itertools.product(_DISTANCES, _DIRECTIONS):
        box = _box(point, size.width, size.height, distance * dots, math.radians(direction))
        cost = _covered(box, room, corners) + _crossed(point, box, corners[~own])
        best = min(best, (cost, box, distance), key=lambda found: found[0])
        if cost == 0:
            break
    _, box, distance = best
    made.set_position(((box.x0 - point[0]) / dots, (box.y0 - point[1]) / dots))
    if distance > _FAR:
        _lead(made.axes, point, _nearest(point, box))
    return box


def _along(axes: Axes, dots: float) -> list[Bbox]:
    """Return small boxes along the lines that are drawn, markers without a line left out."""
    drawn = [line for line in axes.lines if line.get_linestyle() not in ("None", "", " ")]
    ends = [axes.transData.transform(line.get_xydata()) for line in drawn]
    steps = [a + (b - a) * t for line in ends for a, b in pairwise(line) for t in np.linspace(0, 1, _STEPS)]
    return [_around((float(x), float(y)), dots) for x, y in steps]


def _nearest(point: Point, box: Bbox) -> Point:
    return min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)


def _crossed(point: Point, box: Bbox, corners: np.ndarray) -> float:
    """Return what it costs that the line from the text to its point crosses what is taken.

    Args:
        point: Where the line begins.
        box: Where it ends.
        corners: [n,4]: left, lower, right and upper edge of what is taken, the point's own mark left out.
    """
    way = np.linspace(point, _nearest(point, box), 12)[:, None]
    inside = (corners[:, :2] <= way) & (way <= corners[:, 2:])
    return _CROSSING * int(inside.all(axis=2).sum())


def _lead(axes: Axes, start: Point, end: Point) -> None:
    ends = axes.transData.inverted().transform([start, end])
    axes.plot(ends[:, 0], ends[:, 1], color="#666666", lw=0.6, zorder=1)


def _box(point: Point, width: float, height: float, distance: float, angle: float) -> Bbox:
    """Return the box whose middle lies in this direction, and whose edge is this far from the point."""
    x = point[0] + math.cos(angle) * (distance + width / 2)
    y = point[1] + math.sin(angle) * (distance + height / 2)
    return Bbox.from_bounds(x - width / 2, y - height / 2, width, height)


def _covered(box: Bbox, room: Bbox, corners: np.ndarray) -> float:
    """Return the area that the box shares with what is taken, or that lies outside the room."""
    inside = Bbox.intersection(box, room)
    outside = box.width * box.height - (inside.width * inside.height if inside else 0.0)
    low, high = np.maximum(corners[:, :2], box.min), np.minimum(corners[:, 2:], box.max)
    shared = np.prod(np.clip(high - low, 0, None), axis=1).sum()
    return float(shared) + (outside if outside > _NOTHING else 0.0)


def _around(point: Point, radius: float) -> Bbox:
    return Bbox.from_bounds(point[0] - radius, point[1] - radius, 2 * radius, 2 * radius)
