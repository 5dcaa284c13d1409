"""The positions of everything in a drawing. Lengths are pixels at 96 to the inch; y grows downwards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlhood.graph_drawing.scene import Box, WireStyle
from mlhood.graph_drawing.text_metrics import Line


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
