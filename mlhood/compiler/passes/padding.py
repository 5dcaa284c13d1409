"""Merging of padding into the convolution, pooling or padding that follows it.

For a Pad in mode "constant", of spatial axes only, without negative pads:

1. Conv(Pad(x, 0))         ->  Conv(x) with larger pads
2. MaxPool(Pad(x, v))      ->  MaxPool(x) with larger pads, if v is at most the minimum of x's range: -inf for any x, 0
                               after a Relu; without dilation, ceil and indices
3. AveragePool(Pad(x, 0))  ->  AveragePool(x) with larger pads that count, unless it has pads that do not; without ceil
4. Pad(Pad(x, v), v)       ->  Pad(x, v), on any axes

A pool's pads must remain smaller than its window.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Range
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, MaxPool
from mlhood.compiler.passes.ranges import compute_ranges, range_of
from mlhood.compiler.passes.rewriting import defining_node, erase_if_unused, has_one_use, sweep, try_infer


def merge_padding(graph: Graph) -> bool:
    """Merge paddings into their users; return whether anything changed."""
    if not any(isinstance(node.operator, Pad) for node in graph.nodes.values()):
        return False
    ranges = compute_ranges(graph)
    return sweep(graph, lambda graph, node: _merge(graph, node, ranges), Pad, Conv, MaxPool, AveragePool)


def _merge(graph: Graph, node: Node, ranges: dict[Value, Range]) -> bool:
    pad = defining_node(node.inputs[0], Pad)
    x = pad.inputs[0] if pad else None
    if pad is None or x is None or len(node.outputs) != 1:
        return False
    lowest = float(np.finfo(x.type.dtype).min) if x.type.is_float else -np.inf  # some exporters write it for -inf
    operator = _merged_operator(graph, pad, node, max(range_of(x, ranges)[0], lowest))
    types = (None if value is None else value.type for value in node.inputs[1:])
    if operator is None or try_infer(operator, x.type, *types) != node.outputs[0].type:
        return False
    graph.replace(node, operator, x, *node.inputs[1:])
    erase_if_unused(graph, pad)
    return True


def _merged_operator(graph: Graph, pad: Node, node: Node, minimum: float) -> Operator | None:
    """Return the node's operator with the padding merged, or None if the result would differ."""
    first, operator = pad.operator, node.operator
    if not isinstance(first, Pad) or first.mode != "constant" or min(before := tuple(map(int, first.pads))) < 0:
        return None
    if isinstance(operator, Pad):
        is_same = operator.mode == "constant" and operator.value == first.value and min(map(int, operator.pads)) >= 0
        return _add_pads(operator, before) if is_same and has_one_use(graph, pad.outputs[0]) else None  # rule 4
    pads = _spatial_pads(before)
    if pads is None or not _can_pad(operator, first.value, minimum):
        return None
    padded = _add_pads(operator, pads)
    return replace(padded, count_pads=True) if isinstance(padded, AveragePool) else padded


def _can_pad(operator: Operator, value: float, minimum: float) -> bool:
    """Return whether an operator's own padding has the effect of padding with a value."""
    if isinstance(operator, Conv):  # rule 1
        return value == 0
    if isinstance(operator, MaxPool):  # rule 2
        return value <= minimum and not operator.ceil and not operator.indices and max(operator.dilations) == 1
    counts = isinstance(operator, AveragePool) and (operator.count_pads or not any(operator.pads))
    return counts and value == 0 and not operator.attributes["ceil"]  # rule 3


def _spatial_pads(pads: tuple[int, ...]) -> tuple[int, ...] | None:
    rank = len(pads) // 2
    if rank < 3 or any(pads[:2]) or any(pads[rank : rank + 2]):
        return None
    return (*pads[2:rank], *pads[rank + 2 :])


def _add_pads(operator: Conv | MaxPool | AveragePool | Pad | Operator, pads: tuple[int, ...]) -> Operator:
    total = tuple(map(sum, zip(operator.attributes["pads"], pads, strict=True)))
    return replace(operator, pads=total)  # type: ignore[call-arg]
