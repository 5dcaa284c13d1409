"""Where everything in a drawing stands. Lengths are pixels at 96 to the inch; y grows downwards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlhood.graph_drawing.scene import Box
from mlhood.graph_drawing.text_metrics import Line


@dataclass(frozen=True)
class PlacedBox:
    """A box and the rectangle that it fills."""

    box: Box
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class PlacedText:
    """Words: the left end and the top of the first line, and the box that they belong to, if any."""

    lines: tuple[Line, ...]
    left: float
    top: float
    box: Box | None = None


@dataclass(frozen=True)
class Route:
    """A wire's way: straight where two points differ in x or in y only, and in an S where in both.

    Args:
        points: From the box that makes the value to the one that reads it.
        kind: As in `Port`.
        source: The box that makes the value.
        target: The box that reads it; None for the stump to which all its readers' wires are tied.
    """

    points: tuple[tuple[float, float], ...]
    kind: str
    source: Box
    target: Box | None = None


@dataclass
class Placement:
    """Everything with its place, in a picture of this width and height."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[PlacedBox] = field(default_factory=list)
    texts: list[PlacedText] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)

    def add(self, other: Placement, right: float, down: float) -> None:
        """Put another placement into this one."""
        self.boxes += [replace(one, left=one.left + right, top=one.top + down) for one in other.boxes]
        self.texts += [replace(one, left=one.left + right, top=one.top + down) for one in other.texts]
        self.routes += [
            replace(one, points=tuple((x + right, y + down) for x, y in one.points)) for one in other.routes
        ]
        self.width = max(self.width, right + other.width)
        self.height = max(self.height, down + other.height)
