"""Positions for the boxes, labels and wires of one scene, or of two side by side.

Layers are arranged from top to bottom, columns side by side. The boxes of a layer are centred on a common line; above
them is space for arrows, below for the labels of their values. Wires run straight down beside and between the boxes of
a layer and bend only in the gaps between layers, so that none runs through a box. Lengths are pixels at 96 to the inch;
y grows downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from mlhood.graph_drawing.arrangement import Arrangement, LayerHeights
from mlhood.graph_drawing.layers import arrange_layers, assign_joint_ranks, assign_ranks, connected_components
from mlhood.graph_drawing.scene import Box, Scene, Wire, WireStyle
from mlhood.graph_drawing.shapes import LABEL_GAP, arrow_label
from mlhood.graph_drawing.text_metrics import Line

_LANE = 10.0
_CLEARANCE = 12.0
MAX_WIDTH = 1040.0  # a page on GitHub shows about 900, and so scales the letters down a little
_COMPONENT_GAP = 34.0
_COLUMN_HEIGHT = 1000.0  # of a column at most, where the width allows
_MAX_COLUMNS = 4
_TITLE_HEIGHT = 34.0


@dataclass(frozen=True)
class PlacedBox:
    """A box and its rectangle."""

    box: Box
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class PlacedText:
    """Lines of text, the left and top end of the first, and the box that they belong to, if any."""

    lines: tuple[Line, ...]
    left: float
    top: float
    box: Box | None = None


@dataclass(frozen=True)
class Route:
    """The path of a wire: straight between points that differ in x or y only, S-shaped between others.

    Args:
        points: From the box that produces the value to the one that uses it.
        style: As in `Port`.
        source: The box that produces the value.
        target: The box that uses it; None for the stub from which the wires to all its users branch off.
    """

    points: tuple[tuple[float, float], ...]
    style: WireStyle
    source: Box
    target: Box | None = None


@dataclass
class Placement:
    """Everything in a drawing of this width and height."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[PlacedBox] = field(default_factory=list)
    texts: list[PlacedText] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)

    def add(self, other: Placement, dx: float, dy: float) -> None:
        """Insert another placement, shifted."""
        self.boxes += [replace(box, left=box.left + dx, top=box.top + dy) for box in other.boxes]
        self.texts += [replace(text, left=text.left + dx, top=text.top + dy) for text in other.texts]
        for route in other.routes:
            self.routes.append(replace(route, points=tuple((x + dx, y + dy) for x, y in route.points)))
        self.width = max(self.width, dx + other.width)
        self.height = max(self.height, dy + other.height)


def place_arrangement(arrangement: Arrangement, heights: Sequence[LayerHeights] | None = None) -> Placement:
    """Return the positions of an arrangement, with its own heights of layers or given ones."""
    return _Router(arrangement, heights or arrangement.heights).placement


class _Router:
    """Turns an arrangement into a placement.

    Where a wire continues in the next column, it runs below its column, up between the columns in its own lane
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


def place_scene(scene: Scene, columns: int | None = None) -> Placement:
    """Return the positions of a scene: connected components side by side, each in layers.

    Args:
        scene: What to draw.
        columns: Into how many columns a component is split; by its height and width if omitted.

    Raises:
        DrawingError: Too many values pass by other nodes to be drawn.
    """
    placement = Placement()
    right = top = 0.0
    for members in connected_components(len(scene.boxes), scene.wires):
        component = _place_component(scene, members, columns)
        if right and right + component.width > MAX_WIDTH:
            right, top = 0.0, placement.height + _COMPONENT_GAP
        placement.add(component, right, top)
        right += component.width + _COMPONENT_GAP
    return placement


def _place_component(scene: Scene, members: list[int], columns: int | None) -> Placement:
    local = {member: i for i, member in enumerate(members)}
    boxes = [scene.boxes[member] for member in members]
    wires = [
        Wire(local[wire.source], wire.port, local[wire.target], wire.arrow)
        for wire in scene.wires
        if wire.source in local
    ]
    ranks = assign_ranks(len(boxes), [(wire.source, wire.target) for wire in wires])
    layering = arrange_layers(len(boxes), wires, ranks)
    if columns is not None:
        return place_arrangement(Arrangement(boxes, wires, layering, columns))
    single = Arrangement(boxes, wires, layering, 1)
    height = sum(heights.band + heights.gap for heights in single.heights)
    for count in range(min(_MAX_COLUMNS, round(height / _COLUMN_HEIGHT + 0.35)), 1, -1):
        placement = place_arrangement(Arrangement(boxes, wires, layering, count))
        if placement.width <= MAX_WIDTH:
            return placement
    return place_arrangement(single)


def place_side_by_side(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> tuple[Placement, float]:
    """Return the positions of two scenes, boxes of one key at the same height, and the x of the line between them."""
    left, right = _aligned(*scenes) or (place_scene(scenes[0], 1), place_scene(scenes[1], 1))
    lines = _title(titles[0]), _title(titles[1])
    middle = max(left.width, lines[0].width) + _COMPONENT_GAP
    return _join((left, right), lines, middle + _COMPONENT_GAP), middle


def place_mirrored(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> tuple[Placement, list[Route]]:
    """Return the positions of two scenes with the same wires, box beside box, and separately the second one's routes.

    Those still run downwards, without the stubs below the boxes.
    """
    count, wires = len(scenes[0].boxes), scenes[0].wires
    layering = arrange_layers(count, wires, assign_ranks(count, [(wire.source, wire.target) for wire in wires]))
    arrangements = [Arrangement(scene.boxes, scene.wires, layering, 1) for scene in scenes]
    heights = [LayerHeights.joined(*pair) for pair in zip(*(half.heights for half in arrangements), strict=True)]
    left, right = (place_arrangement(half, heights) for half in arrangements)
    lines = _title(titles[0]), _title(titles[1])
    placement = _join((left, right), lines, max(left.width, lines[0].width) + 2 * _COMPONENT_GAP)
    placement.texts = [text for text in placement.texts if text.lines]
    mirrored = [route for route in placement.routes[len(left.routes) :] if route.target is not None]
    del placement.routes[len(left.routes) :]
    return placement, mirrored


def _title(text: str) -> Line:
    return Line(text, 13.0, bold=True)


def _join(halves: tuple[Placement, Placement], titles: tuple[Line, Line], middle: float) -> Placement:
    joined = Placement()
    for half, title, x in zip(halves, titles, (0.0, middle), strict=True):
        joined.texts.append(PlacedText((title,), x, 0.0))
        joined.add(half, x, _TITLE_HEIGHT)
        joined.width = max(joined.width, x + title.width)
    return joined


def _aligned(first: Scene, second: Scene) -> tuple[Placement, Placement] | None:
    joint_ranks = assign_joint_ranks(first, second)
    if joint_ranks is None:
        return None
    arrangements = []
    for scene, ranks in zip((first, second), joint_ranks, strict=True):
        layering = arrange_layers(len(scene.boxes), scene.wires, ranks)
        arrangements.append(Arrangement(scene.boxes, scene.wires, layering, 1))
    pairs = zip_longest(*(half.heights for half in arrangements), fillvalue=LayerHeights())
    heights = [LayerHeights.joined(*pair) for pair in pairs]
    return place_arrangement(arrangements[0], heights), place_arrangement(arrangements[1], heights)
