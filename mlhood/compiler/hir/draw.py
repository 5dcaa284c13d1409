"""Drawings of graphs, as SVG and PNG, without any program besides Python.

draw(graph)                            # shows itself in a notebook
draw(graph, "lenet.svg")               # or .png
"""

from __future__ import annotations

from pathlib import Path

from mlhood.compiler.hir.describe import describe
from mlhood.compiler.hir.diff import diff
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError
from mlhood.graph_drawing import Drawing, Scene, draw_scene, draw_side_by_side, fit_text

MAX_NODES = 500  # of a drawing: more would be slow, and unreadable


def draw(graph: Graph, path: str | Path | None = None) -> Drawing:
    """Draw a graph from top to bottom: inputs, operators, outputs; the type of each value beside its wire.

    Constants are lines in the box of the node that reads them. Families of operators differ in colour and outline.
    The wires of floating-point values are single, those of quantised values double, those of other integers dotted.

    Args:
        graph: The graph.
        path: Where to save the drawing, .svg or .png; nowhere if omitted.

    Raises:
        CompilerError: The graph has more nodes than `MAX_NODES`, or a cycle.
        DrawingError: Too many values pass by other nodes, or the file's name has another ending.
        OutputError: The file cannot be written.
    """
    _check_size(graph)
    drawing = draw_scene(describe(graph))
    if path is not None:
        drawing.save(path)
    return drawing


def draw_diff(before: Graph, after: Graph, path: str | Path | None = None) -> Drawing:
    """Draw two graphs side by side and mark the differences, which `diff` lists as text.

    Nodes of the same name are at the same height. Removed nodes have a dashed outline and a minus, added ones a thick
    outline and a plus, changed ones a double outline and a ~, with the changes in the later graph; others are pale.

    Args:
        before: The earlier graph.
        after: The later one.
        path: Where to save the drawing, .svg or .png; nowhere if omitted.

    Raises:
        CompilerError: A graph has more nodes than `MAX_NODES`, or a cycle.
        DrawingError: Too many values pass by other nodes, or the file's name has another ending.
        OutputError: The file cannot be written.
    """
    for graph in (before, after):
        _check_size(graph)
    changes = {(change.entity, change.name): change for change in diff(before, after).changes}
    notes = {key: change.details for key, change in changes.items()}
    scenes = describe(before), describe(after, notes=notes)
    for scene in scenes:
        for box in scene.boxes:
            box.mark = changes[box.key].kind if box.key in changes else "same"
    titles = _title("before", scenes[0]), _title("after", scenes[1])
    drawing = draw_side_by_side(scenes, titles, name=f"{before.name} and {after.name}")
    if path is not None:
        drawing.save(path)
    return drawing


def _title(prefix: str, scene: Scene) -> str:
    count = sum(kind == "node" for kind, _ in (box.key for box in scene.boxes))
    return fit_text(f"{prefix}: {scene.name}, {count} node{'' if count == 1 else 's'}", 40)


def _check_size(graph: Graph) -> None:
    count = len(graph.nodes)
    if count > MAX_NODES:
        raise CompilerError(
            "the graph is too large to be drawn",
            where=f"graph {graph.name!r}",
            expected=f"at most {MAX_NODES} nodes",
            got=f"{count} nodes",
            todo="print it: to_text(graph)",
        )
