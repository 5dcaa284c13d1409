"""Labels placed without overlapping each other, the points they annotate, lines, or the edge of the axes."""

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

_DIRECTIONS = (45, 0, 90, 135, 315, 180, 270, 225, 20, 70, 110, 160, 340, 290, 250, 200, 80, 100, 260, 280)  # degrees
_DISTANCES = (9, 13, 17, 22, 28, 35, 43, 52, 70, 92, 120)  # points
_LEADER_DISTANCE = 17  # points; labels further away get a leader line
_MARKER_RADIUS = 5.0  # points
_SAMPLES = 150  # boxes per segment of a line
_CROSSING_COST = 20.0
_TOLERANCE = 1e-6
Point = tuple[float, float]


def label(axes: Axes, anchors: Sequence[tuple[float, float]], texts: Sequence[str], **font: Any) -> Sequence[Text]:
    """Write a text beside each anchor, as near as space permits, with a leader line to distant ones.

    Limits, scales and size of the figure must be final.

    Args:
        axes: The axes.
        anchors: Points in data coordinates.
        texts: One per anchor.
        font: Properties of the texts.
    """
    figure = axes.get_figure(root=True)
    if figure is None:
        return []
    figure.draw_without_rendering()
    pixels = figure.dpi / 72  # per point
    points = [(float(x), float(y)) for x, y in axes.transData.transform(list(anchors))] if anchors else []
    obstacles = [_square(point, _MARKER_RADIUS * pixels) for point in points]
    obstacles += [text.get_window_extent() for text in axes.texts]
    obstacles += _line_boxes(axes, pixels)
    labels = [
        axes.annotate(text, anchor, (0, 0), textcoords="offset points", annotation_clip=False, **font)
        for anchor, text in zip(anchors, texts, strict=True)
    ]
    # from right to left: there is less space to the right of a point than to its left
    for point, annotation in sorted(zip(points, labels, strict=True), key=lambda pair: -pair[0][0]):
        obstacles.append(_place(annotation, axes.get_window_extent(), point, obstacles, pixels))
    return labels


def _place(annotation: Any, window: Bbox, point: Point, obstacles: Sequence[Bbox], pixels: float) -> Bbox:
    """Move a label to the nearest free position, or to the one with the least overlap; return its box."""
    size = Text.get_window_extent(annotation)
    corners = np.array([box.extents for box in obstacles])
    contains_point = np.array([box.contains(*point) for box in obstacles])
    best = math.inf, size, 0.0
    for distance, direction in itertools.product(_DISTANCES, _DIRECTIONS):
        box = _box_at(point, size.width, size.height, distance * pixels, math.radians(direction))
        cost = _overlap(box, window, corners) + _crossing(point, box, corners[~contains_point])
        best = min(best, (cost, box, distance), key=lambda candidate: candidate[0])
        if cost == 0:
            break
    _, box, distance = best
    annotation.set_position(((box.x0 - point[0]) / pixels, (box.y0 - point[1]) / pixels))
    if distance > _LEADER_DISTANCE:
        ends = annotation.axes.transData.inverted().transform([point, _nearest(point, box)])
        annotation.axes.plot(ends[:, 0], ends[:, 1], color="#666666", lw=0.6, zorder=1)
    return box


def _line_boxes(axes: Axes, pixels: float) -> list[Bbox]:
    """Return small boxes along the lines of the axes; markers without a line have none."""
    lines = [line for line in axes.lines if line.get_linestyle() not in ("None", "", " ")]
    paths = [axes.transData.transform(line.get_xydata()) for line in lines]
    samples = [a + (b - a) * t for path in paths for a, b in pairwise(path) for t in np.linspace(0, 1, _SAMPLES)]
    return [_square((float(x), float(y)), pixels) for x, y in samples]


def _nearest(point: Point, box: Bbox) -> Point:
    return min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)


def _crossing(point: Point, box: Bbox, corners: np.ndarray) -> float:
    """Return the cost of the leader line from a point to its label crossing obstacles.

    Args:
        point: Start of the line.
        box: The label.
        corners: [n, 4]: left, lower, right and upper edge of the obstacles, except the point's own marker.
    """
    samples = np.linspace(point, _nearest(point, box), 12)[:, None]
    inside = (corners[:, :2] <= samples) & (samples <= corners[:, 2:])
    return _CROSSING_COST * int(inside.all(axis=2).sum())


def _box_at(point: Point, width: float, height: float, distance: float, angle: float) -> Bbox:
    """Return the box in this direction from the point, with its edge at this distance."""
    x = point[0] + math.cos(angle) * (distance + width / 2)
    y = point[1] + math.sin(angle) * (distance + height / 2)
    return Bbox.from_bounds(x - width / 2, y - height / 2, width, height)


def _overlap(box: Bbox, window: Bbox, corners: np.ndarray) -> float:
    """Return the area of a box that overlaps obstacles or lies outside the window."""
    visible = Bbox.intersection(box, window)
    outside = box.width * box.height - (visible.width * visible.height if visible else 0.0)
    low, high = np.maximum(corners[:, :2], box.min), np.minimum(corners[:, 2:], box.max)
    covered = np.prod(np.clip(high - low, 0, None), axis=1).sum()
    return float(covered) + (outside if outside > _TOLERANCE else 0.0)


def _square(point: Point, radius: float) -> Bbox:
    return Bbox.from_bounds(point[0] - radius, point[1] - radius, 2 * radius, 2 * radius)
