"""Drawings of graphs, as SVG and PNG, without any program besides Python.

draw(graph)                            # shows itself in a notebook
draw(graph, "lenet.svg")               # or .png
draw(graph, part=["conv1", "relu1"])   # these nodes only
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlhood.compiler.hir.describe import STYLES, describe
from mlhood.compiler.hir.diff import diff
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError
from mlhood.graph_drawing import Drawing, Scene, draw_scene, draw_side_by_side, fit_text


def draw(
    graph: Graph,
    path: str | Path | None = None,
    *,
    part: Iterable[str] | None = None,
    columns: int | None = None,
    sizes: bool = False,
    limit: int = 500,
) -> Drawing:
    """Draw a graph from top to bottom: inputs, operators, outputs; the type of each value beside its wire.

    Constants are lines in the box of the node that reads them. Families of operators differ in colour and outline.
    The wires of floating-point values are single, those of quantised values double, those of other integers dotted.

    Args:
        graph: The graph.
        path: Where to save the drawing, .svg or .png; nowhere if omitted.
        part: Names of the nodes to draw; all if omitted.
        columns: Into how many columns a long graph is split; by its height and width if omitted.
        sizes: Whether to show how many bytes the constants occupy.
        limit: The largest number of nodes: more would be slow, and unreadable.

    Raises:
        CompilerError: The graph has more nodes than `limit`, a cycle, or no node of a name in `part`.
        DrawingError: Too many values pass by other nodes, or the file's name has another ending.
        OutputError: The file cannot be written.
    """
    part = part if part is None or isinstance(part, str) else list(part)
    _check_limit(graph, part, limit)
    if columns is not None and columns < 1:
        raise CompilerError("a drawing has at least one column", where=f"graph {graph.name!r}", got=columns)
    drawing = draw_scene(describe(graph, part=part, sizes=sizes), columns=columns)
    if path is not None:
        drawing.save(path)
    return drawing


def draw_diff(
    before: Graph,
    after: Graph,
    path: str | Path | None = None,
    *,
    part: Iterable[str] | None = None,
    limit: int = 500,
) -> Drawing:
    """Draw two graphs side by side and mark the differences, which `diff` lists as text.

    Nodes of the same name are at the same height. Removed nodes have a dashed outline and a minus, added ones a thick
    outline and a plus, changed ones a double outline and a ~, with the changes in the later graph; others are pale.

    Args:
        before: The earlier graph.
        after: The later one.
        path: Where to save the drawing, .svg or .png; nowhere if omitted.
        part: Names of the nodes to draw, of which each graph shows those that it has; all if omitted.
        limit: The largest number of nodes of one graph.

    Raises:
        CompilerError: A graph has more nodes than `limit`, or a cycle; or neither has a node of a name in `part`.
        DrawingError: Too many values pass by other nodes, or the file's name has another ending.
        OutputError: The file cannot be written.
    """
    part = part if part is None else [part] if isinstance(part, str) else list(part)
    for graph in (before, after):
        _check_limit(graph, part, limit)
    changes = {(change.entity, change.name): change for change in diff(before, after).changes}
    notes = {key: change.details for key, change in changes.items()}
    if part is None:
        scenes = describe(before), describe(after, notes=notes)
    else:
        _check_part(part, before, after)
        scenes = _describe_part(before, part), _describe_part(after, part, notes)
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


def _check_part(part: list[str], before: Graph, after: Graph) -> None:
    unknown = [name for name in part if name not in before.nodes and name not in after.nodes]
    if unknown:
        raise CompilerError(
            "there is no such part to draw",
            where=f"graphs {before.name!r} and {after.name!r}",
            expected="names of nodes, such as " + ", ".join(list(before.nodes)[:3]),
            got=", ".join(unknown),
        )


def _describe_part(graph: Graph, part: list[str], notes: dict[tuple[str, str], tuple[str, ...]] | None = None) -> Scene:
    names = [name for name in part if name in graph.nodes]
    return describe(graph, part=names, notes=notes) if names else Scene(graph.name, [], [], STYLES)


def _check_limit(graph: Graph, part: str | list[str] | None, limit: int) -> None:
    count = len(graph.nodes) if part is None else len([part] if isinstance(part, str) else part)
    if count > limit:
        raise CompilerError(
            "the graph is too large to be drawn",
            where=f"graph {graph.name!r}",
            expected=f"at most {limit} nodes",
            got=f"{count} nodes",
            todo="draw a part: draw(graph, part=list(graph.nodes)[:50]); or print it: to_text(graph)",
        )
