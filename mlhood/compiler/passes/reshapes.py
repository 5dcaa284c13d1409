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
    erase_if_unused,
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
    operator = reshape_between(x.type, node.outputs[0].type)
    if x.type == node.outputs[0].type:  # rule 2
        replace_and_erase(graph, node, x)
    elif operator is not None and has_one_use(graph, inner.outputs[0]):  # rule 1
        graph.replace(node, operator, x)
    else:
        return False
    erase_if_unused(graph, inner)
    return True
