"""From an arrangement to positions: layers from top to bottom, columns side by side, and the routes of the wires.

The boxes of a layer are centred on a common line; above them is space for arrows, below for the labels of their
values. Wires run straight down beside and between the boxes of a layer and bend only in the gaps between layers, so
that none runs through a box.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.graph_drawing.arrangement import Arrangement, LayerHeights
from mlhood.graph_drawing.node_sizes import LABEL_GAP, arrow_label
from mlhood.graph_drawing.placement import PlacedBox, PlacedText, Placement, Route
from mlhood.graph_drawing.scene import Box, Wire

_LANE = 10.0
_CLEARANCE = 12.0


def place_arrangement(arrangement: Arrangement, heights: Sequence[LayerHeights] | None = None) -> Placement:
    """Return the positions of an arrangement, with its own heights of layers or given ones."""
    return _Router(arrangement, heights or arrangement.heights).placement


class _Router:
    """Turns an arrangement into a placement.

    Where a wire continues in the next column, it runs below its column, up between the columns in a lane of its own
    and over the next one.
    """

    def __init__(self, arrangement: Arrangement, heights: Sequence[LayerHeights]) -> None:
        self.arrangement = arrangement
        self.heights = heights
        crossing = arrangement.crossing()
        self.lanes = [list(crossing[column.stop - 1]) for column in arrangement.columns[:-1]]
        self.x = dict(arrangement.x)
        self.top: dict[int, float] = {}
        self.right_edges: list[float] = []  # of each column
        self.bottom_edges: list[float] = []
        self.placement = Placement()
        self._place_columns()
        self._sort_lanes()
        for vertex, box in enumerate(arrangement.boxes):
            self._place_box(vertex, box)
        for i, wire in enumerate(arrangement.wires):
            self._route(i, wire)

    def _place_columns(self) -> None:
        arrangement = self.arrangement
        header = max((_CLEARANCE + _LANE * len(lanes) for lanes in self.lanes), default=0.0)
        left = 0.0
        for i, column in enumerate(arrangement.columns):
            vertices = [vertex for layer in column for vertex in arrangement.layers[layer]]
            start = min((arrangement.x[vertex] - arrangement.sizes[vertex].left for vertex in vertices), default=0.0)
            end = max((arrangement.x[vertex] + arrangement.sizes[vertex].right for vertex in vertices), default=0.0)
            self.x |= {vertex: arrangement.x[vertex] - start + left for vertex in vertices}
            y = header
            for layer in column:
                self.top[layer] = y
                y += self.heights[layer].band + self.heights[layer].gap
            bottom = y - self.heights[column.stop - 1].gap if column else y
            self.right_edges.append(left + end - start)
            self.bottom_edges.append(bottom)
            lanes = len(self.lanes[i]) if i < len(self.lanes) else 0
            self.placement.width = self.right_edges[-1]
            footer = _CLEARANCE + _LANE * lanes if lanes else 0.0
            self.placement.height = max(self.placement.height, bottom + footer)
            left = self.right_edges[-1] + 2 * _CLEARANCE + _LANE * lanes

    def _sort_lanes(self) -> None:
        """Give the rightmost value the innermost lane, so that the lanes between two columns do not cross."""
        arrangement = self.arrangement
        for column, lanes in zip(arrangement.columns, self.lanes, strict=False):
            x_of = {}
            for i, path in enumerate(arrangement.paths):
                wire = arrangement.wires[i]
                for step, vertex in enumerate(path[:-1]):
                    if arrangement.layer_of[vertex] == column.stop - 1:
                        x_of[wire.source, wire.port] = self.x[vertex] + arrangement.segment(i, step)[1]
            lanes.sort(key=lambda value: -x_of[value])

    def _place_box(self, vertex: int, box: Box) -> None:
        size, layer = self.arrangement.sizes[vertex], self.arrangement.layer_of[vertex]
        heights = self.heights[layer]
        top = self.top[layer] + heights.head + (heights.body - size.body) / 2
        self.placement.boxes.append(PlacedBox(box, self.x[vertex] - size.width / 2, top, size.width, size.body))
        end = self.top[layer] + heights.band
        for offset, port in zip(size.port_offsets, box.ports, strict=True):
            x = self.x[vertex] + offset
            self.placement.texts.append(PlacedText(port.label, x + LABEL_GAP, top + size.body + 3, box))
            self.placement.routes.append(Route(((x, top + size.body), (x, end)), port.style, box))

    def _route(self, i: int, wire: Wire) -> None:
        points: list[tuple[float, float]] = []
        for step in range(len(self.arrangement.paths[i]) - 1):
            points += self._segment(i, step)
        source, target = self.placement.boxes[wire.source], self.placement.boxes[wire.target]
        points = [(points[0][0], source.top + source.height), *points, (points[-1][0], target.top)]
        self.placement.routes.append(Route(tuple(points), source.box.ports[wire.port].style, source.box, target.box))
        if label := target.box.arrow_labels[wire.arrow]:
            line, (x, y) = arrow_label(label), points[-1]
            self.placement.texts.append(PlacedText((line,), x + LABEL_GAP, y - line.height - 2, target.box))

    def _segment(self, i: int, step: int) -> list[tuple[float, float]]:
        """Return the points of one segment of a wire: two, or a detour to the top of the next column."""
        upper, leaves, lower, arrives = self.arrangement.segment(i, step)
        layer = self.arrangement.layer_of[upper]
        start = (self.x[upper] + leaves, self.top[layer] + self.heights[layer].band)
        end = (self.x[lower] + arrives, self.top[layer + 1])
        last_layers = [column.stop - 1 for column in self.arrangement.columns[:-1]]
        if layer not in last_layers:
            return [start, end]
        column, wire = last_layers.index(layer), self.arrangement.wires[i]
        lane = self.lanes[column].index((wire.source, wire.port))
        below = self.bottom_edges[column] + _CLEARANCE + _LANE * lane
        beside = self.right_edges[column] + _CLEARANCE + _LANE * lane
        above = end[1] - _CLEARANCE - _LANE * (len(self.lanes[column]) - 1 - lane)
        return [start, (start[0], below), (beside, below), (beside, above), (end[0], above), end]
