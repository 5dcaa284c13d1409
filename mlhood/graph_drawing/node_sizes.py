"""The size of a box with what belongs to it: its text, the arrows above it, the labels of its values below it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from mlhood.graph_drawing.scene import Box, Port
from mlhood.graph_drawing.shapes import INSETS
from mlhood.graph_drawing.text_metrics import Line

LABEL_GAP = 6.0  # between a wire and the label to its right
_ARROW_DISTANCE = 16.0
_MAX_OFF_CENTER = 3  # arrows, of which the main one is in the middle of the box
_PADDING = 9.0
_DOUBLE_OUTLINE = 6.0  # added to width and height
_ARROW_HEIGHT = 9.0


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
