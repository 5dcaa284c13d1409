"""From an arrangement to places: layers from top to bottom, columns side by side.

In a layer, boxes stand on a common middle line; above
them is room for arrows, below for the labels of what leaves. Wires run straight down beside and between the boxes of a
layer and bend only in the gaps between layers, so that none runs through a box.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.graph_drawing.arrangement import Arrangement, Level
from mlhood.graph_drawing.node_sizes import LABEL_GAP, word_line
from mlhood.graph_drawing.placement import PlacedBox, PlacedText, Placement, Route
from mlhood.graph_drawing.scene import Box, Wire

_LANE = 10.0
_CLEAR = 12.0


def set_out(plan: Arrangement, levels: Sequence[Level] | None = None) -> Placement:
    """Return an arrangement with everything in its place, the layers as high as it says itself, or as given."""
    return _Sheet(plan, levels or plan.levels).placement


class _Sheet:
    """Turns an arrangement into places."""

    def __init__(self, plan: Arrangement, levels: Sequence[Level]) -> None:
        self.plan = plan
        self.levels = levels
        crossing = plan.crossing()
        self.lanes = [list(crossing[column.stop - 1]) for column in plan.columns[:-1]]
        self.x = dict(plan.x)
        self.top: dict[int, float] = {}
        self.edges: list[float] = []  # right edge of each column
        self.bottoms: list[float] = []  # lower edge of each column
        self.placement = Placement()
        self._place_columns()
        self._sort_lanes()
        for vertex, box in enumerate(plan.boxes):
            self._box(vertex, box)
        self._routes()

    def _place_columns(self) -> None:
        header = max((_CLEAR + _LANE * len(lanes) for lanes in self.lanes), default=0.0)
        left = 0.0
        for number, column in enumerate(self.plan.columns):
            vertices = [vertex for row in column for vertex in self.plan.rows[row]]
            start = min((self.plan.x[vertex] - self.plan.frames[vertex].left for vertex in vertices), default=0.0)
            end = max((self.plan.x[vertex] + self.plan.frames[vertex].right for vertex in vertices), default=0.0)
            self.x |= {vertex: self.plan.x[vertex] - start + left for vertex in vertices}
            y = header
            for row in column:
                self.top[row] = y
                y += self.levels[row].band + self.levels[row].gap
            bottom = y - self.levels[column.stop - 1].gap if column else y
            self.edges.append(left + end - start)
            self.bottoms.append(bottom)
            lanes = len(self.lanes[number]) if number < len(self.lanes) else 0
            self.placement.width = self.edges[-1]
            self.placement.height = max(self.placement.height, bottom + (_CLEAR + _LANE * lanes if lanes else 0.0))
            left = self.edges[-1] + 2 * _CLEAR + _LANE * lanes

    def _sort_lanes(self) -> None:
        """Let the value that is furthest right take the inmost lane, so that the lanes of a cut do not cross."""
        for column, lanes in zip(self.plan.columns, self.lanes, strict=False):
            at = {}
            for number, path in enumerate(self.plan.paths):
                wire = self.plan.wires[number]
                for step, vertex in enumerate(path[:-1]):
                    if self.plan.row_of[vertex] == column.stop - 1:
                        at[wire.source, wire.port] = self.x[vertex] + self.plan.ends(number, step)[1]
            lanes.sort(key=lambda value: -at[value])

    def _box(self, vertex: int, box: Box) -> None:
        one, level = self.plan.frames[vertex], self.levels[self.plan.row_of[vertex]]
        top = self.top[self.plan.row_of[vertex]] + level.head + (level.body - one.body) / 2
        self.placement.boxes.append(PlacedBox(box, self.x[vertex] - one.width / 2, top, one.width, one.body))
        end = self.top[self.plan.row_of[vertex]] + level.band
        for stem, port in zip(one.stems, box.ports, strict=True):
            x = self.x[vertex] + stem
            self.placement.texts.append(PlacedText(port.label, x + LABEL_GAP, top + one.body + 3, box))
            self.placement.routes.append(Route(((x, top + one.body), (x, end)), port.kind, box))

    def _routes(self) -> None:
        for number, wire in enumerate(self.plan.wires):
            points: list[tuple[float, float]] = []
            for step in range(len(self.plan.paths[number]) - 1):
                points += self._piece(number, step)
            target = self._placed(wire.target)
            points.append((points[-1][0], target.top))
            source = self._placed(wire.source)
            points.insert(0, (points[0][0], source.top + source.height))
            kind = source.box.ports[wire.port].kind
            self.placement.routes.append(Route(tuple(points), kind, source.box, target.box))
            self._word(wire, points[-1])

    def _placed(self, vertex: int) -> PlacedBox:
        return self.placement.boxes[vertex]

    def _piece(self, number: int, step: int) -> list[tuple[float, float]]:
        upper, leaves, lower, arrives = self.plan.ends(number, step)
        row = self.plan.row_of[upper]
        start = (self.x[upper] + leaves, self.top[row] + self.levels[row].band)
        end = (self.x[lower] + arrives, self.top[row + 1])
        cut = next((i for i, column in enumerate(self.plan.columns[:-1]) if column.stop == row + 1), None)
        if cut is None:
            return [start, end]
        wire = self.plan.wires[number]
        lane = self.lanes[cut].index((wire.source, wire.port))
        below = self.bottoms[cut] + _CLEAR + _LANE * lane
        beside = self.edges[cut] + _CLEAR + _LANE * lane
        above = end[1] - _CLEAR - _LANE * (len(self.lanes[cut]) - 1 - lane)
        return [start, (start[0], below), (beside, below), (beside, above), (end[0], above), end]

    def _word(self, wire: Wire, tip: tuple[float, float]) -> None:
        box = self.plan.boxes[wire.target]
        word = box.slots[wire.slot]
        if word:
            line = word_line(word)
            self.placement.texts.append(PlacedText((line,), tip[0] + LABEL_GAP, tip[1] - line.height - 2, box))
