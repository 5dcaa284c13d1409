"""Common subexpression elimination.

1. constants of the same type and elements  ->  the first of them
2. y = f(a, ...), z = f(a, ...)              ->  z replaced by y; f with the same attributes
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.text import digest
from mlhood.compiler.hir.values import Constant, Node
from mlhood.compiler.passes.rewriting import has_no_uses

_SAMPLE_SIZE = 16


def merge_common_subexpressions(graph: Graph) -> bool:
    """Merge equal constants and equal nodes; return whether anything changed."""
    merged = _merge_constants(graph)
    return _merge_nodes(graph) or merged


def _merge_constants(graph: Graph) -> bool:
    groups: dict[Hashable, list[Constant]] = {}
    for constant in graph.constants.values():
        if not has_no_uses(graph, constant):
            groups.setdefault((constant.type, _sample(constant.data)), []).append(constant)
    changed = [_merge_group(graph, group) for group in groups.values() if len(group) > 1]
    return any(changed)


def _merge_group(graph: Graph, group: list[Constant]) -> bool:
    """Merge equal constants of a group with the same type and sample; only here are all elements compared."""
    first_by_digest: dict[str, Constant] = {}
    changed = False
    for constant in group:
        first = first_by_digest.setdefault(digest(constant.data), constant)
        if first is not constant and np.array_equal(_as_bytes(first.data), _as_bytes(constant.data)):  # rule 1
            graph.replace_all_uses(constant, first)
            graph.remove_constant(constant)
            changed = True
    return changed


def _sample(array: np.ndarray) -> bytes:
    """Return a few elements, spread over the array; different constants nearly always differ in them."""
    size = array.size
    return array.flat[np.linspace(0, size - 1, min(size, _SAMPLE_SIZE)).astype(np.int64)].tobytes() if size else b""


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _merge_nodes(graph: Graph) -> bool:
    first_by_key: dict[Hashable, Node] = {}
    changed = False
    for node in graph.topological():
        # repr instead of the attributes, because 0.0 == -0.0 and 1 == True
        first = first_by_key.setdefault((type(node.operator), repr(node.operator), node.inputs), node)
        if first is node:
            continue
        for old, new in zip(node.outputs, first.outputs, strict=True):  # rule 2
            graph.replace_all_uses(old, new)
        graph.remove(node)
        changed = True
    return changed
