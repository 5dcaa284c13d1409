"""What is to be drawn: boxes with lines of text, the wires between them, and their styles; nothing has a place yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlhood.graph_drawing.text_metrics import Line


@dataclass(frozen=True)
class NodeStyle:
    """The look of a kind of boxes.

    Args:
        title: What the key below the drawing calls it.
        color: Fill colour, "#rrggbb".
        shape: Outline of the box, one of `shapes.INSETS`, so that kinds differ in a copy without colour, too.
    """

    title: str
    color: str
    shape: str


@dataclass(frozen=True)
class WireStyle:
    """The look of a kind of wires.

    Args:
        title: What the key below the drawing calls it.
        pattern: "single", "double" or "dotted".
    """

    title: str
    pattern: str = "single"


@dataclass(frozen=True)
class StyleSheet:
    """All styles of a family of drawings, in the order of the key: the ones in use are explained there."""

    nodes: tuple[NodeStyle, ...]
    wires: tuple[WireStyle, ...]


@dataclass(frozen=True)
class Port:
    """Where a value leaves its box.

    Args:
        label: Lines beside the wire, such as the value's type.
        style: Style of the wires that begin here.
    """

    label: tuple[Line, ...]
    style: WireStyle

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
    """A vertex of the graph.

    Args:
        key: Kind and name, by which the boxes of two scenes are matched: ("node", "conv1"). An SVG shows the name as
            the box's tooltip.
        style: Colour and outline.
        lines: The text inside.
        ports: One for each value that it produces.
        arrow_labels: For each wire that arrives, the text beside its arrow, "" for none.
        mark: "" in a drawing of one scene; in a comparison "added", "removed", "changed" or "same", which is pale.
    """

    key: tuple[str, str]
    style: NodeStyle
    lines: tuple[Line, ...]
    ports: tuple[Port, ...] = ()
    arrow_labels: list[str] = field(default_factory=list)
    mark: str = ""


@dataclass(frozen=True)
class Wire:
    """An edge of the graph: a value on its way from the box that produces it to one that uses it.

    Args:
        source: Index of the box that produces it.
        port: Index among that box's ports.
        target: Index of the box that uses it.
        arrow: Index among the arrows that arrive at that box.
    """

    source: int
    port: int
    target: int
    arrow: int


@dataclass
class Scene:
    """A graph to draw.

    Args:
        name: Title.
        boxes: In topological order.
        wires: All edges.
        styles: The styles that boxes and ports have, and those that drawings of this family might have.
    """

    name: str
    boxes: list[Box]
    wires: list[Wire]
    styles: StyleSheet
