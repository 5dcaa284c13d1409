"""Positions for the boxes, labels and wires of one scene, or of two side by side."""

from __future__ import annotations

from itertools import zip_longest

from mlhood.graph_drawing.arrangement import Arrangement, LayerHeights
from mlhood.graph_drawing.layers import arrange_layers, assign_joint_ranks, assign_ranks, connected_components
from mlhood.graph_drawing.placement import PlacedText, Placement, Route
from mlhood.graph_drawing.routing import place_arrangement
from mlhood.graph_drawing.scene import Scene, Wire
from mlhood.graph_drawing.text_metrics import Line

MAX_WIDTH = 1040.0  # a page on GitHub shows about 900, and so scales the letters down a little
_COMPONENT_GAP = 34.0
_COLUMN_HEIGHT = 1000.0  # of a column at most, where the width allows
_MAX_COLUMNS = 4
_TITLE_HEIGHT = 34.0


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
    heights = [one.joined(other) for one, other in zip(*(half.heights for half in arrangements), strict=True)]
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
    heights = [one.joined(other) for one, other in pairs]
    return place_arrangement(arrangements[0], heights), place_arrangement(arrangements[1], heights)
