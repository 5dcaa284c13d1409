"""From a graph to a scene: a box for each node, input and output; constants are lines in the boxes that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlhood.compiler.hir.drawing.labels import (
    arrow_label,
    attribute_lines,
    constant_lines,
    format_constant,
    node_label,
    type_lines,
    typeset,
)
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.errors import CompilerError
from mlhood.graph_drawing import Box, Line, NodeStyle, Port, Scene, StyleSheet, Wire, WireStyle, fit_text

# Light tints of the palette of Okabe and Ito, which colour-blind readers can distinguish; their lightness differs, too.
FAMILIES: dict[str, NodeStyle] = {
    "end": NodeStyle("input, output", "#ffffff", "stadium"),
    "product": NodeStyle("convolution, dense", "#f9d798", "rectangle"),
    "normalization": NodeStyle("normalisation", "#fbf6c2", "cut"),
    "activation": NodeStyle("activation", "#b5e3d2", "rounded"),
    "pooling": NodeStyle("pooling, reduction", "#c3e5f7", "funnel"),
    "arithmetic": NodeStyle("arithmetic", "#f2cdb6", "hexagon"),
    "shape": NodeStyle("shape, order", "#e3e3e3", "slanted"),
    "quantization": NodeStyle("quantisation", "#ecd0e0", "barred"),
    "other": NodeStyle("other", "#f7f7f7", "rectangle"),
}

FLOAT = WireStyle("floating point")
QUANTIZED = WireStyle("quantised", "double")
INTEGER = WireStyle("integers, bool", "dotted")

STYLES = StyleSheet(tuple(FAMILIES.values()), (FLOAT, QUANTIZED, INTEGER))


Key = tuple[str, str]
_LABEL_SIZE = 10.0
_MAX_DETAILS = 6  # lines below the name


def describe(
    graph: Graph,
    *,
    part: Iterable[str] | None = None,
    sizes: bool = False,
    notes: Mapping[Key, tuple[str, ...]] | None = None,
) -> Scene:
    """Return a graph as a scene.

    Args:
        graph: The graph.
        part: Names of the nodes to show; values from and to other nodes begin and end in separate boxes.
        sizes: Whether to show how many bytes the constants occupy.
        notes: What has changed, by the keys of the boxes that show it.

    Raises:
        CompilerError: The graph has a cycle, or no node of a name in `part`.
    """
    nodes = graph.topological() if part is None else _select(graph, part)
    scene = _Builder(graph, sizes)
    for placeholder in graph.placeholders.values():
        if part is None or any(node in placeholder.users for node in nodes):
            scene.add_end(("input", placeholder.name), placeholder)
    for node in nodes:
        scene.add_node(node)
    for name, value in graph.outputs.items():
        if part is None or value in scene.ports:
            scene.add_output(name, value)
    if part is not None:
        scene.add_outside_users(set(nodes))
    for box in scene.boxes:
        lines = (notes or {}).get(box.key, ())
        box.lines += tuple(Line(fit_text(typeset(f"~ {text}"), 44), _LABEL_SIZE) for text in lines)
    return Scene(graph.name, scene.boxes, scene.wires, STYLES)


def _select(graph: Graph, part: Iterable[str]) -> list[Node]:
    names = dict.fromkeys([part] if isinstance(part, str) else part)
    unknown = [name for name in names if name not in graph.nodes]
    if unknown or not names:
        raise CompilerError(
            "there is no such part to draw",
            where=f"graph {graph.name!r}",
            expected="names of nodes, such as " + ", ".join(list(graph.nodes)[:3]),
            got=", ".join(map(str, unknown)) or "no name",
        )
    return [node for node in graph.topological() if node.name in names]


def value_port(type: TensorType) -> Port:
    """Return the port of a value of this type."""
    style = QUANTIZED if type.quantization is not None else FLOAT if type.is_float else INTEGER
    lines = enumerate(type_lines(type))
    return Port(tuple(Line(fit_text(typeset(text), 40), _LABEL_SIZE, faint=i > 0) for i, text in lines), style)


class _Builder:
    def __init__(self, graph: Graph, sizes: bool) -> None:
        self.graph = graph
        self.sizes = sizes
        self.boxes: list[Box] = []
        self.wires: list[Wire] = []
        self.ports: dict[Value, tuple[int, int]] = {}  # indices of a box and of a port of it

    def add_end(self, key: Key, value: Value | None, label: str = "") -> Box:
        """Add a box that only names a value: an input, an output, or where a part begins and ends."""
        lines = (Line(fit_text(label or key[1]), 12.0, bold=not label), Line(key[0], 9.5, faint=True))
        box = Box(key, FAMILIES["end"], lines, () if value is None else (value_port(value.type),))
        if value is not None:
            self.ports[value] = len(self.boxes), 0
        self.boxes.append(box)
        return box

    def add_node(self, node: Node) -> None:
        """Add a node, and wires from what it reads."""
        for value in node.inputs:
            if value is not None and not isinstance(value, Constant) and value not in self.ports:
                self.add_end(("from outside", value.name), value)
        details = [*attribute_lines(node), *constant_lines(node, sizes=self.sizes)]
        if len(details) > _MAX_DETAILS:
            details[_MAX_DETAILS - 1 :] = [f"… and {len(details) - _MAX_DETAILS + 1} more"]
        lines = (
            Line(fit_text(node_label(node.operator)), 13.0, bold=True),
            Line(fit_text(node.name), 9.5, faint=True),
            *(Line(fit_text(typeset(text), 40)) for text in details),
        )
        ports = tuple(value_port(value.type) for value in node.outputs)
        index = len(self.boxes)
        self.boxes.append(Box(("node", node.name), FAMILIES[node.operator.family], lines, ports))
        self.ports.update({value: (index, i) for i, value in enumerate(node.outputs)})
        for position, value in enumerate(node.inputs):
            if value is not None and not isinstance(value, Constant):
                self.add_wire(value, index, arrow_label(node, position))

    def add_wire(self, value: Value, target: int, label: str = "") -> None:
        """Connect a value with one more arrow of a box."""
        labels = self.boxes[target].arrow_labels
        self.wires.append(Wire(*self.ports[value], target, len(labels)))
        labels.append(fit_text(label, 16))

    def add_output(self, name: str, value: Value) -> None:
        """Add an output of the graph."""
        box = self.add_end(("output", name), None)
        if isinstance(value, Constant):
            box.lines += (Line(fit_text(f"constant {format_constant(value)}")),)
        else:
            self.add_wire(value, len(self.boxes) - 1)

    def add_outside_users(self, nodes: set[Node]) -> None:
        """Connect values that nodes outside the part use with boxes of dots."""
        for value in list(self.ports):
            if value.producer in nodes and any(node not in nodes for node in value.users):
                self.add_end(("to others", value.name), None, "…")
                self.add_wire(value, len(self.boxes) - 1)
