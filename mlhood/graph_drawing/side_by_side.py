"""Two drawings side by side, what is in both at the same height."""

from __future__ import annotations

from itertools import zip_longest

from mlhood.graph_drawing.arrangement import Arrangement, Level
from mlhood.graph_drawing.layers import joint_ranks, layered
from mlhood.graph_drawing.layout import BETWEEN, place
from mlhood.graph_drawing.placement import PlacedText, Placement
from mlhood.graph_drawing.routing import set_out
from mlhood.graph_drawing.scene import Scene
from mlhood.graph_drawing.text_metrics import Line, said

_TITLE = 34.0
_NOTHING = Level(0.0, 0.0, 0.0, 0.0)


def side_by_side(before: Scene, after: Scene) -> tuple[Placement, float]:
    """Return both drawings in one, with a title each, and where the line between them goes."""
    left, right = _aligned(before, after) or (place(before, 1), place(after, 1))
    titles = [_title("before", before), _title("after", after)]
    left_width = max(left.width, titles[0].width)
    middle = left_width + BETWEEN
    both = Placement()
    for part, title, x in zip((left, right), titles, (0.0, middle + BETWEEN), strict=True):
        both.texts.append(PlacedText((title,), x, 0.0))
        both.add(part, x, _TITLE)
        both.width = max(both.width, x + title.width)
    return both, middle


def _title(word: str, scene: Scene) -> Line:
    count = sum(box.key[0] == "node" for box in scene.boxes)
    return Line(said(f"{word}: {scene.name}, {count} node{'' if count == 1 else 's'}", 40), 13.0, bold=True)


def _aligned(before: Scene, after: Scene) -> tuple[Placement, Placement] | None:
    found = joint_ranks(before, after)
    if found is None:
        return None
    plans = []
    for scene, rank in zip((before, after), found, strict=True):
        layers = layered(len(scene.boxes), scene.wires, rank)
        plans.append(Arrangement(scene.boxes, scene.wires, layers, 1))
    first, second = (plan.levels for plan in plans)
    levels = [one.joined(other) for one, other in zip_longest(first, second, fillvalue=_NOTHING)]
    return set_out(plans[0], levels), set_out(plans[1], levels)
