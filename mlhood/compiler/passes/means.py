"""Canonicalisation of means over all spatial axes to global average pooling, which back ends and the quantiser support.

1. ReduceMean(x) over all axes from 2 on, keepdims=1  ->  GlobalAveragePool(x)
2. ReduceMean(x) over all axes from 2 on, keepdims=0  ->  Flatten(GlobalAveragePool(x))

x is float32 and has one to three such axes, which is what runtimes like ONNX Runtime support for pooling.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.pooling import GlobalAveragePool
from mlhood.compiler.operators.reduction import ReduceMean, Reduction
from mlhood.compiler.operators.shape import Flatten
from mlhood.compiler.passes.rewriting import sweep


def means_to_pools(graph: Graph) -> bool:
    """Rewrite means over spatial axes to pooling; return whether anything changed."""
    return sweep(graph, _to_pool, ReduceMean)


def _to_pool(graph: Graph, node: Node) -> bool:
    operator, x = node.operator, node.inputs[0]
    if x is None or not isinstance(operator, Reduction) or x.type.element != "float32" or x.type.rank not in (3, 4, 5):
        return False
    if sorted(normalize_axis(axis, x.type.rank) for axis in operator.axes) != list(range(2, x.type.rank)):
        return False
    if operator.keep:
        graph.replace(node, GlobalAveragePool(), x)  # rule 1
        return True
    pool = graph.add(GlobalAveragePool(), x)
    flat = graph.replace(node, Flatten(1), pool.outputs[0])  # rule 2
    name = flat.name
    graph.rename_node(flat, f"{name}.flatten")
    graph.rename_node(pool, name)
    return True
