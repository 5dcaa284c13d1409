"""Positions for the boxes, labels and wires of one scene, or of two side by side.

Layers are arranged from top to bottom. The boxes of a layer are centred on a common line; above
them is space for arrows, below for the labels of their values. Wires run straight down beside and between the boxes of
a layer and bend only in the gaps between layers, so that none runs through a box. Lengths are pixels at 96 to the inch;
y grows downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, zip_longest

from mlhood.graph_drawing.arrangement import Arrangement, LayerHeights
from mlhood.graph_drawing.layers import (
    Layering,
    arrange_layers,
    assign_joint_ranks,
    assign_ranks,
    connected_components,
)
from mlhood.graph_drawing.scene import Box, Scene, Wire, WireStyle
from mlhood.graph_drawing.shapes import LABEL_GAP, arrow_label
from mlhood.graph_drawing.text_metrics import Line

_MAX_WIDTH = 1040.0  # a page on GitHub shows about 900, and so scales the letters down a little
_COMPONENT_GAP = 34.0
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
    heights = heights or arrangement.heights
    layer_of, sizes = arrangement.layer_of, arrangement.sizes
    left = min((x - sizes[vertex].left for vertex, x in arrangement.x.items()), default=0.0)
    x = {vertex: x - left for vertex, x in arrangement.x.items()}
    top = list(accumulate((layer.band + layer.gap for layer in heights), initial=0.0))
    placement = Placement(
        width=max((x[vertex] + sizes[vertex].right for vertex in x), default=0.0),
        height=top[-1] - heights[-1].gap if heights else 0.0,
    )
    for vertex, box in enumerate(arrangement.boxes):
        size, layer = sizes[vertex], layer_of[vertex]
        upper = top[layer] + heights[layer].head + (heights[layer].body - size.body) / 2
        placement.boxes.append(PlacedBox(box, x[vertex] - size.width / 2, upper, size.width, size.body))
        for offset, port in zip(size.port_offsets, box.ports, strict=True):
            start = (x[vertex] + offset, upper + size.body)
            placement.texts.append(PlacedText(port.label, start[0] + LABEL_GAP, start[1] + 3, box))
            placement.routes.append(Route((start, (start[0], top[layer] + heights[layer].band)), port.style, box))
    for i, wire in enumerate(arrangement.wires):
        points: list[tuple[float, float]] = []
        for step in range(len(arrangement.paths[i]) - 1):
            vertex, leaves, following, arrives = arrangement.segment(i, step)
            layer = layer_of[vertex]
            points.append((x[vertex] + leaves, top[layer] + heights[layer].band))
            points.append((x[following] + arrives, top[layer + 1]))
        source, target = placement.boxes[wire.source], placement.boxes[wire.target]
        points = [(points[0][0], source.top + source.height), *points, (points[-1][0], target.top)]
        placement.routes.append(Route(tuple(points), source.box.ports[wire.port].style, source.box, target.box))
        if label := target.box.arrow_labels[wire.arrow]:
            line, (end, bottom) = arrow_label(label), points[-1]
            placement.texts.append(PlacedText((line,), end + LABEL_GAP, bottom - line.height - 2, target.box))
    return placement


def place_scene(scene: Scene) -> Placement:
    """Return the positions of a scene: connected components side by side, each in layers.

    Raises:
        DrawingError: Too many values pass by other nodes to be drawn.
    """
    placement = Placement()
    right = top = 0.0
    for members in connected_components(len(scene.boxes), scene.wires):
        local = {member: i for i, member in enumerate(members)}
        boxes = [scene.boxes[member] for member in members]
        wires = [
            Wire(local[wire.source], wire.port, local[wire.target], wire.arrow)
            for wire in scene.wires
            if wire.source in local
        ]
        component = place_arrangement(Arrangement(boxes, wires, _layering(boxes, wires)))
        if right and right + component.width > _MAX_WIDTH:
            right, top = 0.0, placement.height + _COMPONENT_GAP
        placement.add(component, right, top)
        right += component.width + _COMPONENT_GAP
    return placement


def _layering(boxes: Sequence[Box], wires: Sequence[Wire]) -> Layering:
    ranks = assign_ranks(len(boxes), [(wire.source, wire.target) for wire in wires])
    return arrange_layers(len(boxes), wires, ranks)


def place_side_by_side(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> tuple[Placement, float]:
    """Return the positions of two scenes, boxes of one key at the same height, and the x of the line between them."""
    if joint_ranks := assign_joint_ranks(*scenes):
        layerings = [
            arrange_layers(len(scene.boxes), scene.wires, ranks)
            for scene, ranks in zip(scenes, joint_ranks, strict=True)
        ]
        halves = _aligned(scenes, layerings)
    else:
        halves = place_scene(scenes[0]), place_scene(scenes[1])
    return _join(halves, titles)


def place_mirrored(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> tuple[Placement, list[Route]]:
    """Return the positions of two scenes with the same wires, box beside box, and separately the second one's routes.

    Those still run downwards, without the stubs below the boxes.
    """
    halves = _aligned(scenes, [_layering(scenes[0].boxes, scenes[0].wires)] * 2)
    placement, _ = _join(halves, titles)
    placement.texts = [text for text in placement.texts if text.lines]
    first = len(halves[0].routes)
    mirrored = [route for route in placement.routes[first:] if route.target is not None]
    del placement.routes[first:]
    return placement, mirrored


def _aligned(scenes: tuple[Scene, Scene], layerings: Sequence[Layering]) -> tuple[Placement, Placement]:
    """Return the positions of two scenes whose layers are at the same heights."""
    first, second = (
        Arrangement(scene.boxes, scene.wires, layering) for scene, layering in zip(scenes, layerings, strict=True)
    )
    pairs = zip_longest(first.heights, second.heights, fillvalue=LayerHeights())
    heights = [LayerHeights.joined(*pair) for pair in pairs]
    return place_arrangement(first, heights), place_arrangement(second, heights)


def _join(halves: tuple[Placement, Placement], titles: tuple[str, str]) -> tuple[Placement, float]:
    """Put two halves side by side below their titles; return the x between them, too."""
    lines = [Line(title, 13.0, bold=True) for title in titles]
    middle = max(halves[0].width, lines[0].width) + _COMPONENT_GAP
    joined = Placement()
    for half, line, x in zip(halves, lines, (0.0, middle + _COMPONENT_GAP), strict=True):
        joined.texts.append(PlacedText((line,), x, 0.0))
        joined.add(half, x, _TITLE_HEIGHT)
        joined.width = max(joined.width, x + line.width)
    return joined, middle
