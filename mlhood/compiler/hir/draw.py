"""Drawings of graphs, as SVG and PNG, by matplotlib alone: no program besides Python is needed.

draw(graph)                            # shows itself in a notebook
draw(graph, "lenet.svg")               # or .png
draw(graph, part=["conv1", "relu1"])   # these nodes only
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mlhood.compiler.hir.diff import diff
from mlhood.compiler.hir.drawing.describe import describe
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError
from mlhood.graph_drawing.drawing import Drawing
from mlhood.graph_drawing.layout import place
from mlhood.graph_drawing.render import figure_of
from mlhood.graph_drawing.scene import Scene
from mlhood.graph_drawing.side_by_side import side_by_side


def draw(
    graph: Graph,
    path: str | Path | None = None,
    *,
    part: Iterable[str] | None = None,
    columns: int | None = None,
    sizes: bool = False,
    key: bool = True,
    limit: int = 500,
) -> Drawing:
    """Draw a graph from top to bottom: inputs, operators, outputs; the type of each value beside its wire.

    Constants are lines in the box of the node that reads them. Families of operators differ in colour and in outline.
    Floating-point values are single lines, quantised ones double, other integers dotted.

    Args:
        graph: The graph.
        path: Where to save the drawing, .svg or .png; nowhere if left out.
        part: Names of the nodes to draw; all if left out.
        columns: Into how many columns a long graph is cut; by its height and width if left out.
        sizes: Whether to say how many bytes the constants take.
        key: Whether to say below what colours, outlines and lines mean.
        limit: The most nodes to draw: more would be slow, and nobody could find anything in it.

    Raises:
        CompilerError: The graph has more nodes than `limit`, a cycle, or no node of a name in `part`; or the file's
            name has another ending.
        OutputError: The file cannot be written.
    """
    part = part if part is None or isinstance(part, str) else list(part)
    check_limit(graph, part, limit)
    if columns is not None and columns < 1:
        raise CompilerError("a drawing has at least one column", where=f"graph {graph.name!r}", got=columns)
    scene = describe(graph, part=part, sizes=sizes)
    placement = place(scene, columns)
    drawing = Drawing(placement, lambda: figure_of(placement, key=key), graph.name)
    if path is not None:
        drawing.save(path)
    return drawing


def draw_diff(
    before: Graph,
    after: Graph,
    path: str | Path | None = None,
    *,
    part: Iterable[str] | None = None,
    key: bool = True,
    limit: int = 500,
) -> Drawing:
    """Draw two graphs side by side, with what changed from one to the other; `diff` says the same in words.

    Nodes of one name stand at the same height. What went has a dashed outline and a minus, what came a thick outline
    and a plus, what changed a double outline and a ~, with words in the later drawing; the rest is pale.

    Args:
        before: The earlier graph.
        after: The later one.
        path: Where to save the drawing, .svg or .png; nowhere if left out.
        part: Names of the nodes to draw, of which each graph shows those that it has; all if left out.
        key: Whether to say below what colours, outlines and lines mean.
        limit: The most nodes to draw of one graph.

    Raises:
        CompilerError: A graph has more nodes than `limit`, or a cycle; neither has a node of a name in `part`; or the
            file's name has another ending.
        OutputError: The file cannot be written.
    """
    part = part if part is None else [part] if isinstance(part, str) else list(part)
    for graph in (before, after):
        check_limit(graph, part, limit)
    changes = {(change.sort, change.name): change for change in diff(before, after).changes}
    notes = {key: change.details for key, change in changes.items()}
    if part is None:
        scenes = describe(before), describe(after, notes=notes)
    else:
        _check_part(part, before, after)
        scenes = _described(before, part), _described(after, part, notes)
    for scene in scenes:
        for box in scene.boxes:
            box.mark = changes[box.key].kind if box.key in changes else "same"
    placement, rule = side_by_side(*scenes)
    drawing = Drawing(placement, lambda: figure_of(placement, key=key, rule=rule), f"{before.name} and {after.name}")
    if path is not None:
        drawing.save(path)
    return drawing


def _check_part(part: list[str], before: Graph, after: Graph) -> None:
    unknown = [name for name in part if name not in before.nodes and name not in after.nodes]
    if unknown:
        raise CompilerError(
            "there is no such part to draw",
            where=f"graphs {before.name!r} and {after.name!r}",
            expected="names of nodes, such as " + ", ".join(list(before.nodes)[:3]),
            got=", ".join(unknown),
        )


def _described(graph: Graph, part: list[str], notes: dict[tuple[str, str], tuple[str, ...]] | None = None) -> Scene:
    names = [name for name in part if name in graph.nodes]
    return describe(graph, part=names, notes=notes) if names else Scene(graph.name, [], [])


def check_limit(graph: Graph, part: str | list[str] | None, limit: int) -> None:
    """Check that there is not too much to draw.

    Raises:
        CompilerError: There is.
    """
    count = len(graph.nodes) if part is None else len([part] if isinstance(part, str) else part)
    if count > limit:
        raise CompilerError(
            "the graph is too large to be drawn",
            where=f"graph {graph.name!r}",
            expected=f"at most {limit} nodes",
            got=f"{count} nodes",
            todo="draw a part: draw(graph, part=list(graph.nodes)[:50]); or print it: to_text(graph)",
        )
