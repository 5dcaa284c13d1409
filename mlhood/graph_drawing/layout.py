"""Places for boxes, labels and wires of a scene, each part that hangs together in layers of its own."""

from __future__ import annotations

from mlhood.graph_drawing.arrangement import Arrangement
from mlhood.graph_drawing.columns import column_count
from mlhood.graph_drawing.layers import components, layered, ranks
from mlhood.graph_drawing.placement import Placement
from mlhood.graph_drawing.routing import set_out
from mlhood.graph_drawing.scene import Scene, Wire

WIDEST = 1040.0  # of which a page of GitHub shows about 900, so that it makes the letters a little smaller
BETWEEN = 34.0  # from one part to the next


def place(scene: Scene, columns: int | None = None) -> Placement:
    """Give everything its place: parts that hang together one beside the other, each in layers.

    Args:
        scene: What to draw.
        columns: Into how many columns a part is cut; chosen by its height and width if left out.

    Raises:
        CompilerError: Too many values pass by other nodes to be drawn.
    """
    whole = Placement()
    right = top = 0.0
    for members in components(len(scene.boxes), scene.wires):
        part = _part(scene, members, columns)
        if right and right + part.width > WIDEST:
            right, top = 0.0, whole.height + BETWEEN
        whole.add(part, right, top)
        right += part.width + BETWEEN
    return whole


def _part(scene: Scene, members: list[int], columns: int | None) -> Placement:
    local = {member: i for i, member in enumerate(members)}
    boxes = [scene.boxes[member] for member in members]
    wires = [
        Wire(local[wire.source], wire.port, local[wire.target], wire.slot)
        for wire in scene.wires
        if wire.source in local
    ]
    rank = ranks(len(boxes), [(wire.source, wire.target) for wire in wires])
    layers = layered(len(boxes), wires, rank)
    if columns is not None:
        return set_out(Arrangement(boxes, wires, layers, columns))
    height = sum(level.band + level.gap for level in Arrangement(boxes, wires, layers, 1).levels)
    for count in range(column_count(height), 1, -1):
        placement = set_out(Arrangement(boxes, wires, layers, count))
        if placement.width <= WIDEST:
            return placement
    return set_out(Arrangement(boxes, wires, layers, 1))
