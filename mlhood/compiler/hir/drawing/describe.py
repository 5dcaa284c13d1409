"""From a graph to a scene: a box for each node, input and output; constants are lines in the boxes that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlhood.compiler.hir.drawing.labels import (
    arrow_words,
    attribute_lines,
    constant_lines,
    constant_words,
    heading,
    type_lines,
)
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.errors import CompilerError
from mlhood.graph_drawing.scene import NUMBERS, QUANTIZED, REAL, Box, Port, Scene, Wire
from mlhood.graph_drawing.text_metrics import Line, said, typeset

Key = tuple[str, str]
_LABEL = 10.0
_DETAILS = 6  # lines below the name; a node that reads more constants says how many more


def node_key(name: str) -> Key:
    """Return what a node's box is known by."""
    return "node", name


def describe(
    graph: Graph,
    *,
    part: Iterable[str] | None = None,
    sizes: bool = False,
    notes: Mapping[Key, tuple[str, ...]] | None = None,
) -> Scene:
    """Return what a drawing of a graph says.

    Args:
        graph: The graph.
        part: Names of the nodes to show; what they read from others, or others from them, ends in a box of dots.
        sizes: Whether to say how many bytes the constants take.
        notes: What has changed, for boxes of which that is to be said.

    Raises:
        CompilerError: The graph has a cycle, or no node of a name in `part`.
    """
    shown = graph.topological() if part is None else _part(graph, part)
    scene = _Builder(graph, sizes)
    for placeholder in graph.placeholders.values():
        if part is None or any(node in placeholder.users for node in shown):
            scene.end(("input", placeholder.name), placeholder)
    for node in shown:
        scene.node(node)
    for name, value in graph.outputs.items():
        scene.output(name, value, part is None)
    if part is not None:
        scene.readers_outside(set(shown))
    for box in scene.boxes:
        box.lines += tuple(Line(said(typeset(f"~ {text}"), 44), 10.0) for text in (notes or {}).get(box.key, ()))
    return Scene(graph.name, scene.boxes, scene.wires)


def _part(graph: Graph, names: Iterable[str]) -> list[Node]:
    chosen = dict.fromkeys([names] if isinstance(names, str) else names)
    unknown = [name for name in chosen if name not in graph.nodes]
    if unknown or not chosen:
        raise CompilerError(
            "there is no such part to draw",
            where=f"graph {graph.name!r}",
            expected="names of nodes, such as " + ", ".join(list(graph.nodes)[:3]),
            got=", ".join(map(str, unknown)) or "no name",
        )
    return [node for node in graph.topological() if node.name in chosen]


def port(type: TensorType) -> Port:
    """Return where a value of this type leaves its box."""
    kind = QUANTIZED if type.quantization is not None else REAL if type.is_float else NUMBERS
    return Port(
        tuple(Line(said(typeset(text), 40), _LABEL, faint=i > 0) for i, text in enumerate(type_lines(type))), kind
    )


class _Builder:
    def __init__(self, graph: Graph, sizes: bool) -> None:
        self.graph = graph
        self.sizes = sizes
        self.boxes: list[Box] = []
        self.wires: list[Wire] = []
        self.places: dict[Value, tuple[int, int]] = {}  # box and port

    def end(self, key: Key, value: Value | None, heading: str = "", family: str = "end") -> Box:
        """Add a box that only names a value: an input, or where the drawing ends."""
        lines = (Line(said(heading or key[1]), 12.0, bold=not heading), Line(key[0], 9.5, faint=True))
        box = Box(key, family, lines, () if value is None else (port(value.type),))
        if value is not None:
            self.places[value] = len(self.boxes), 0
        self.boxes.append(box)
        return box

    def node(self, node: Node) -> None:
        """Add a node, and wires from what it reads."""
        sources = [value for value in node.inputs if value is not None and not isinstance(value, Constant)]
        for value in sources:
            if value not in self.places:
                self.end(("from outside", value.name), value)
        details = [*attribute_lines(node), *constant_lines(node, sizes=self.sizes)]
        if len(details) > _DETAILS:
            details[_DETAILS - 1 :] = [f"… and {len(details) - _DETAILS + 1} more"]
        lines = (Line(said(heading(node.operator)), 13.0, bold=True), Line(said(node.name), 9.5, faint=True))
        lines += tuple(Line(said(typeset(text), 40)) for text in details)
        ports = tuple(port(value.type) for value in node.outputs)
        number = len(self.boxes)
        self.boxes.append(Box(node_key(node.name), node.operator.family, lines, ports))
        self.places.update({value: (number, i) for i, value in enumerate(node.outputs)})
        for position, value in enumerate(node.inputs):
            if value is not None and not isinstance(value, Constant):
                self.wire(value, number, arrow_words(node, position))

    def wire(self, value: Value, target: int, words: str = "") -> None:
        """Let a value arrive at one more arrow of a box."""
        slots = self.boxes[target].slots
        self.wires.append(Wire(*self.places[value], target, len(slots)))
        slots.append(said(words, 16))

    def output(self, name: str, value: Value, whole: bool) -> None:
        """Add an output of the graph, if what makes it is shown."""
        if not whole and value not in self.places:
            return
        box = self.end(("output", name), None)
        if isinstance(value, Constant):
            box.lines += (Line(said(f"constant {constant_words(value)}")),)
        else:
            self.wire(value, len(self.boxes) - 1)

    def readers_outside(self, shown: set[Node]) -> None:
        """Let values that nodes outside the part read end in a box of dots."""
        for value in list(self.places):
            if value.producer in shown and any(node not in shown for node in value.users):
                self.end(("to others", value.name), None, "…")
                self.wire(value, len(self.boxes) - 1)
