"""Outlines of boxes, one for each kind of node, so that a copy without colour distinguishes them, and their sizes.

The size of a box includes what belongs to it: its text, the arrows above it, the labels of its values below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from matplotlib.path import Path

from mlhood.graph_drawing.scene import Box, Port
from mlhood.graph_drawing.text_metrics import Line

# Extra distance of the text from the left and right side of the outline.
INSETS = {
    "rectangle": 0.0,
    "rounded": 1.0,
    "stadium": 8.0,
    "cut": 2.0,
    "funnel": 8.0,
    "hexagon": 10.0,
    "slanted": 9.0,
    "barred": 6.0,
}
LABEL_GAP = 6.0  # between a wire and the label to its right
_ARROW_DISTANCE = 16.0
_MAX_OFF_CENTER = 3  # arrows, of which the main one is in the middle of the box
_PADDING = 9.0
_DOUBLE_OUTLINE = 6.0  # added to width and height
_ARROW_HEIGHT = 9.0


def outline(shape: str, left: float, top: float, width: float, height: float) -> Path:
    """Return the outline of a shape that fills a rectangle; y grows downwards."""
    right, bottom = left + width, top + height
    middle, inset = top + height / 2, min(INSETS[shape], height * 0.45)
    cut = min(7.0, height / 3)
    if shape in ("rounded", "stadium"):
        return _round(left, top, width, height, cut if shape == "rounded" else min(width, height) / 2)
    corners = {
        "cut": [
            (left + cut, top),
            (right - cut, top),
            (right, top + cut),
            (right, bottom - cut),
            (right - cut, bottom),
            (left + cut, bottom),
            (left, bottom - cut),
            (left, top + cut),
        ],
        "funnel": [(left, top), (right, top), (right - inset, bottom), (left + inset, bottom)],
        "hexagon": [
            (left + inset, top),
            (right - inset, top),
            (right, middle),
            (right - inset, bottom),
            (left + inset, bottom),
            (left, middle),
        ],
        "slanted": [(left + inset, top), (right, top), (right - inset, bottom), (left, bottom)],
    }.get(shape, [(left, top), (right, top), (right, bottom), (left, bottom)])
    return Path([*corners, corners[0]], closed=True)


def bars(shape: str, left: float, top: float, width: float, height: float) -> list[Path]:
    """Return the lines inside a shape: two vertical bars in "barred", none elsewhere."""
    if shape != "barred":
        return []
    inset = min(4.5, height * 0.3)
    return [Path([(x, top), (x, top + height)]) for x in (left + inset, left + width - inset)]


def _round(left: float, top: float, width: float, height: float, radius: float) -> Path:
    right, bottom = left + width, top + height
    corners = [  # end of a side, corner, start of the next side
        ((right - radius, top), (right, top), (right, top + radius)),
        ((right, bottom - radius), (right, bottom), (right - radius, bottom)),
        ((left + radius, bottom), (left, bottom), (left, bottom - radius)),
        ((left, top + radius), (left, top), (left + radius, top)),
    ]
    points, codes = [(left + radius, top)], [Path.MOVETO]
    for corner in corners:
        points += corner
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*points, points[0]], [*codes, Path.CLOSEPOLY])


@dataclass(frozen=True)
class NodeSize:
    """The size of a vertex in pixels.

    Args:
        left: Extent to the left of the box's middle.
        right: Extent to the right of it.
        width: Width of the box itself.
        head: Height above the box, for arrows and the text beside them.
        body: Height of the box itself.
        foot: Height below the box, for the labels of its values.
        arrow_distance: Distance of neighbouring arrows that arrive.
        port_offsets: Where the values leave, relative to the middle.
    """

    left: float
    right: float
    width: float = 0.0
    head: float = 0.0
    body: float = 0.0
    foot: float = 0.0
    arrow_distance: float = 0.0
    port_offsets: tuple[float, ...] = ()


BEND_SIZE = NodeSize(5.0, 5.0)


def node_size(box: Box) -> NodeSize:
    """Return the size of a box."""
    ports = _port_offsets(box.ports)
    labels = [label for label in box.arrow_labels if label]
    distance = max([_ARROW_DISTANCE, *(arrow_label(label).width + LABEL_GAP + 5 for label in labels)])
    reach = max(map(abs, (*arrow_offsets(len(box.arrow_labels), 0, distance), *ports)), default=0.0)
    text = max((line.width for line in box.lines), default=0.0)
    extra = _DOUBLE_OUTLINE if box.mark == "changed" else 0.0
    width = max(56.0, text + 2 * (_PADDING + INSETS[box.style.shape]), 2 * (reach + 12)) + extra
    label_ends = [offset + LABEL_GAP + port.width for offset, port in zip(ports, box.ports, strict=True)]
    head = _ARROW_HEIGHT + (arrow_label("x").height if labels else 0.0)
    return NodeSize(
        left=width / 2,
        right=max([width / 2, reach + distance if labels else 0.0, *label_ends]),
        width=width,
        head=head if box.arrow_labels else 0.0,
        body=sum(line.height for line in box.lines) + 9.0 + extra,
        foot=max((port.height + 5 for port in box.ports), default=0.0),
        arrow_distance=distance,
        port_offsets=ports,
    )


def arrow_offsets(count: int, main: int, distance: float) -> tuple[float, ...]:
    """Return where arrows arrive, relative to the box's middle: there the main one, or the middle one of many."""
    middle = main if count <= _MAX_OFF_CENTER else (count - 1) / 2
    return tuple((i - middle) * distance for i in range(count))


def arrow_label(label: str) -> Line:
    """Return the text beside an arrow as a line."""
    return Line(label, 9.5, faint=True)


def _port_offsets(ports: tuple[Port, ...]) -> tuple[float, ...]:
    """Return where values leave: a single one in the middle, several side by side, each with its label to its right."""
    if len(ports) <= 1:
        return (0.0,) * len(ports)
    ends = [0.0, *accumulate(port.width + LABEL_GAP + 10 for port in ports)]
    return tuple(start - ends[-1] / 2 for start in ends[:-1])
