"""Dead code: what no output of the graph depends on.

1. node that no output depends on  ->  nothing
2. constant that nothing reads     ->  nothing

Placeholders stay: they are the graph's signature, as its outputs are.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.passes.rewriting import is_unread


def remove_dead_code(graph: Graph) -> bool:
    """Remove the nodes and constants that no output depends on; tell whether there were any."""
    live = _live(graph)
    dead = [node for node in graph.topological() if node not in live] if len(live) < len(graph.nodes) else []
    for node in reversed(dead):  # rule 1; readers before what they read
        graph.remove(node)
    constants = [constant for constant in graph.constants.values() if is_unread(graph, constant)]
    for constant in constants:  # rule 2
        graph.remove_constant(constant)
    return bool(dead or constants)


def _live(graph: Graph) -> set[Node]:
    pending = [value.producer for value in graph.outputs.values()]
    live: set[Node] = set()
    while pending:
        node = pending.pop()
        if node is not None and node not in live:
            live.add(node)
            pending += [value.producer for value in node.inputs if value is not None]
    return live
