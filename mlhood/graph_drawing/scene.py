"""What is to be drawn: boxes with lines of text, the wires between them, and their styles; nothing has a place yet.

A scene describes itself in a sentence or two, the alternative text of its drawing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from mlhood.graph_drawing.text_metrics import Line

_MAX_CHAIN = 220  # characters
_MAX_NAMES = 8


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
        mark: "" or, in a comparison, "added", "removed", "changed" or "same", which is pale.
        summary: What a description says of it; by default its first line.
    """

    key: tuple[str, str]
    style: NodeStyle
    lines: tuple[Line, ...]
    ports: tuple[Port, ...] = ()
    arrow_labels: list[str] = field(default_factory=list)
    mark: str = ""
    summary: str = ""


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


def describe_scene(scene: Scene) -> str:
    """Describe a graph: where it begins and ends, and its nodes in topological order, or counted if they are many."""
    nodes = _nodes(scene)
    titles = [_title(box) for box in nodes]
    chain = ", ".join(titles)
    if len(chain) > _MAX_CHAIN:
        counts = Counter(titles).most_common()
        chain = _names(f"{count} {title}" for title, count in counts)
    users = Counter((wire.source, wire.port) for wire in scene.wires)
    shared = sum(count > 1 for count in users.values())
    branches = f"; {_count(shared, 'value')} with several users" if shared else ""
    return f"Graph of {_count(len(nodes), 'node')}{_ends(scene)}: {chain or 'none'}{branches}."


def describe_comparison(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> str:
    """Describe two graphs side by side by what differs between them."""
    parts = []
    for mark, scene in (("Removed", scenes[0]), ("Added", scenes[1]), ("Changed", scenes[1])):
        marked = [f"{_title(box)} {box.key[1]}" for box in scene.boxes if box.mark == mark.lower()]
        parts += [f"{mark}: {_names(marked)}."] if marked else []
    return f"Two graphs side by side, {titles[0]}; {titles[1]}. {' '.join(parts) or 'No differences.'}"


def describe_mirrored(scenes: tuple[Scene, Scene], titles: tuple[str, str]) -> str:
    """Describe a graph and its mirror image, whose wires point upwards."""
    titles_of_second = _names(dict.fromkeys(_title(box) for box in _nodes(scenes[1])))
    mirrored = f"On the right, {titles[1]}: the same graph with {titles_of_second}."
    return f"On the left, {titles[0]}: {describe_scene(scenes[0])} {mirrored}"


def _nodes(scene: Scene) -> list[Box]:
    return [box for box in scene.boxes if box.key[0] == "node"]


def _title(box: Box) -> str:
    return (box.summary or box.lines[0].text).replace(",", "")


def _ends(scene: Scene) -> str:
    """Return the boxes that are not nodes: " from x, w to result"."""
    sources, targets = {wire.source for wire in scene.wires}, {wire.target for wire in scene.wires}
    ends = [(i, _title(box)) for i, box in enumerate(scene.boxes) if box.key[0] != "node"]
    inputs = [title for i, title in ends if i in sources]
    outputs = [title for i, title in ends if i in targets]
    return (f" from {_names(inputs)}" if inputs else "") + (f" to {_names(outputs)}" if outputs else "")


def _names(names: Iterable[str]) -> str:
    """Return the first few names and how many there are besides."""
    names = list(names)
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
