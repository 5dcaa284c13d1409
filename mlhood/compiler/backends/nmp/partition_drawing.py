"""A graph that is cut over two devices, drawn: each device has its colour and outline, transfers have their size."""

from __future__ import annotations

from pathlib import Path

from mlhood.compiler.backends.nmp.partition import CPU, NMP, Partition
from mlhood.compiler.hir.describe import FAMILIES, FLOAT, INTEGER, QUANTIZED, describe
from mlhood.compiler.hir.values import Value
from mlhood.errors import CompilerError
from mlhood.graph_drawing import Drawing, Line, NodeStyle, Scene, StyleSheet, draw_scene

# Two tints of the palette of Okabe and Ito; outlines differ, too.
STYLES = {
    CPU: NodeStyle("CPU", "#f9d798", "rectangle"),
    NMP: NodeStyle("neural processor (NMP)", "#c3e5f7", "cut"),
}
_LABEL_SIZE = 10.0
_MAX_NAMES = 5


def draw_partition(cut: Partition, path: str | Path | None = None, *, limit: int = 500) -> Drawing:
    """Draw a graph with its nodes in two colours and outlines, CPU and neural processor, and what crosses.

    Args:
        cut: The graph and its devices.
        path: Where to save the drawing, .svg or .png; nowhere if omitted.
        limit: The largest number of nodes.

    Raises:
        CompilerError: The graph has more nodes than `limit`.
        DrawingError: Too many values pass by other nodes, or the file's name has another ending.
        OutputError: The file cannot be written.
    """
    if len(cut.graph.nodes) > limit:
        raise CompilerError("the graph is too large to be drawn", expected=f"{limit} nodes", got=len(cut.graph.nodes))
    scene = describe(cut.graph)
    devices = {("node", node.name): device for node, device in cut.devices.items()}
    crossing = cut.transfers()
    for box in scene.boxes:
        if box.key not in devices:
            continue
        device = devices[box.key]
        box.style = STYLES[device]
        node = cut.graph.nodes[box.key[1]]
        arriving = [value for value in node.inputs if value in crossing and crossing[value][1] == device]
        box.lines += tuple(_crossing(value, *crossing[value]) for value in arriving if value is not None)
    sheet = StyleSheet((FAMILIES["end"], *STYLES.values()), (FLOAT, QUANTIZED, INTEGER))
    drawing = draw_scene(Scene(scene.name, scene.boxes, scene.wires, sheet))
    drawing.alt_text += _description(cut)
    if path is not None:
        drawing.save(path)
    return drawing


def _description(cut: Partition) -> str:
    """Say what runs where, beside what the description of a graph says."""
    text = ""
    for device, style in STYLES.items():
        names = [node.operator.name for node in cut.graph.topological() if cut.devices[node] == device]
        text += f" On the {style.title}: {', '.join(names) if len(names) <= _MAX_NAMES else f'{len(names)} nodes'}."
    return f"{text} Values that cross: {', '.join(value.name for value in cut.transfers()) or 'none'}."


def _crossing(value: Value, source: str, target: str) -> Line:
    size = value.type.size
    text = f"{source} → {target}"
    if isinstance(size, int):
        text += f": {size * value.type.dtype.itemsize:,} bytes"
    return Line(text, _LABEL_SIZE, bold=True)
