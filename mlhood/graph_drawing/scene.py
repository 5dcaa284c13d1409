"""What a drawing says, before anything has a place: boxes with lines of text, and the wires between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlhood.graph_drawing.text_metrics import Line

# How a wire is drawn: one line, two lines, dots.
REAL, QUANTIZED, NUMBERS = "floating point", "quantised", "integers"


@dataclass(frozen=True)
class Port:
    """Where a value leaves its box.

    Args:
        label: The value's type, a few words a line.
        kind: REAL, QUANTIZED or NUMBERS.
    """

    label: tuple[Line, ...]
    kind: str

    @property
    def width(self) -> float:
        """Width of the label in pixels."""
        return max((line.width for line in self.label), default=0.0)

    @property
    def height(self) -> float:
        """Height of the label in pixels."""
        return sum(line.height for line in self.label)


@dataclass
class Box:
    """A node, an input or an output of the graph.

    Args:
        key: What it is and its name, by which the boxes of two graphs are matched: ("node", "conv1").
        family: A family of `drawing.families`, which gives colour and outline.
        lines: The text inside.
        ports: One for each value that it makes.
        slots: For each wire that arrives, the words beside its arrow, mostly none.
        mark: "" in the drawing of one graph; in that of a difference "added", "removed", "changed" or "same".
    """

    key: tuple[str, str]
    family: str
    lines: tuple[Line, ...]
    ports: tuple[Port, ...] = ()
    slots: list[str] = field(default_factory=list)
    mark: str = ""


@dataclass(frozen=True)
class Wire:
    """A value on its way from a box to one that reads it.

    Args:
        source: Number of the box that makes it.
        port: Which of that box's values it is.
        target: Number of the box that reads it.
        slot: At which of that box's arrows it arrives.
    """

    source: int
    port: int
    target: int
    slot: int


@dataclass
class Scene:
    """All boxes, in an order in which each comes after those that it reads, and all wires."""

    name: str
    boxes: list[Box]
    wires: list[Wire]
