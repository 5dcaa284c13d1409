"""Dead code elimination.

1. node that no output depends on  ->  removed
2. constant without uses           ->  removed

Placeholders stay, because they are part of the graph's signature.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.passes.rewriting import has_no_uses


def remove_dead_code(graph: Graph) -> bool:
    """Remove nodes and constants that no output depends on; return whether anything changed."""
    live = _live(graph)
    dead = [node for node in graph.topological() if node not in live] if len(live) < len(graph.nodes) else []
    for node in reversed(dead):  # rule 1; users before their inputs
        graph.remove(node)
    constants = [constant for constant in graph.constants.values() if has_no_uses(graph, constant)]
    for constant in constants:  # rule 2
        graph.remove_constant(constant)
    return bool(dead or constants)


def _live(graph: Graph) -> set[Node]:
    worklist = [value.producer for value in graph.outputs.values()]
    live: set[Node] = set()
    while worklist:
        node = worklist.pop()
        if node is not None and node not in live:
            live.add(node)
            worklist += [value.producer for value in node.inputs if value is not None]
    return live
