"""Merging of consecutive reshapes.

1. reshape(reshape(x))  ->  reshape(x)    reshape: one of Reshape, Flatten, Squeeze, Unsqueeze
2. reshape(reshape(x))  ->  x             if the result has x's shape, even if the inner one has other uses
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes.rewriting import (
    defining_node,
    has_no_uses,
    has_one_use,
    replace_and_erase,
    reshape_between,
    sweep,
)

_RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)


def merge_reshapes(graph: Graph) -> bool:
    """Merge consecutive operators that only change the shape; return whether anything changed."""
    return sweep(graph, _merge, *_RESHAPES)


def _merge(graph: Graph, node: Node) -> bool:
    inner = defining_node(node.inputs[0], *_RESHAPES)
    x = inner.inputs[0] if inner else None
    if inner is None or x is None:
        return False
    if x.type == node.outputs[0].type:  # rule 2
        replace_and_erase(graph, node, x)
    elif not _merge_two(graph, inner, node):
        return False
    if has_no_uses(graph, inner.outputs[0]):
        graph.remove(inner)
    return True


def _merge_two(graph: Graph, inner: Node, outer: Node) -> bool:
    x = inner.inputs[0]
    operator = reshape_between(x.type, outer.outputs[0].type) if x is not None else None
    if operator is None or not has_one_use(graph, inner.outputs[0]):
        return False
    graph.replace(outer, operator, x)  # rule 1
    return True
