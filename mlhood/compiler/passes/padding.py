"""Padding: merged into the windows behind it, or into the padding before it.

Pad being in mode "constant", adding to spatial axes only, and taking nothing away:

1. Conv(Pad(x, 0))         ->  Conv(x) with larger pads
2. MaxPool(Pad(x, v))      ->  MaxPool(x) with larger pads, where v is no more than the least that x can be: -inf for
                               any x, 0 behind a Relu; without dilation, ceil and indices
3. AveragePool(Pad(x, 0))  ->  AveragePool(x) with larger pads that count, if it has none that do not; without ceil
4. Pad(Pad(x, v), v)       ->  Pad(x, v), on any axes

A pool's pads must stay smaller than its window.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, MaxPool
from mlhood.compiler.passes.ranges import Range, range_of, ranges
from mlhood.compiler.passes.rewriting import infer, is_read_once, is_unread, made_by, sweep


def merge_padding(graph: Graph) -> bool:
    """Merge paddings into what reads them; tell whether there were any."""
    if not any(isinstance(node.operator, Pad) for node in graph.nodes.values()):
        return False
    found = ranges(graph)
    return sweep(graph, lambda graph, node: _merge(graph, node, found), Pad, Conv, MaxPool, AveragePool)


def _merge(graph: Graph, node: Node, found: dict[Value, Range]) -> bool:
    before = made_by(node.inputs[0], Pad)
    x = before.inputs[0] if before else None
    if before is None or x is None or len(node.outputs) != 1:
        return False
    operator = _merged(graph, before, node, _least(x, found))
    types = (None if value is None else value.type for value in node.inputs[1:])
    if operator is None or infer(operator, x.type, *types) != node.outputs[0].type:
        return False
    graph.replace(node, operator, x, *node.inputs[1:])
    if is_unread(graph, before.outputs[0]):
        graph.remove(before)
    return True


def _least(x: Value, found: dict[Value, Range]) -> float:
    lowest = float(np.finfo(x.type.dtype).min) if x.type.is_float else -np.inf  # who pads by it means -inf
    return max(range_of(x, found)[0], lowest)


def _merged(graph: Graph, pad: Node, node: Node, least: float) -> Operator | None:
    """Return the node's operator with the padding in it; None if that would be another function."""
    first, operator = pad.operator, node.operator
    if not isinstance(first, Pad) or first.mode != "constant" or min(first.pads) < 0:
        return None
    if isinstance(operator, Pad):
        same = operator.mode == "constant" and operator.value == first.value and min(operator.pads) >= 0
        return _wider(operator, first.pads) if same and is_read_once(graph, pad.outputs[0]) else None  # rule 4
    pads = _spatial(first.pads)
    if pads is None or not _fits(operator, first.value, least):
        return None
    wider = _wider(operator, pads)
    return replace(wider, count_pads=True) if isinstance(wider, AveragePool) else wider


def _fits(operator: Operator, value: float, least: float) -> bool:
    if isinstance(operator, Conv):  # rule 1
        return value == 0
    if isinstance(operator, MaxPool):  # rule 2
        return value <= least and not operator.ceil and not operator.indices and max(operator.dilations) == 1
    counts = isinstance(operator, AveragePool) and (operator.count_pads or not any(operator.pads))
    return counts and value == 0 and not operator.attributes["ceil"]  # rule 3


def _spatial(pads: tuple[int, ...]) -> tuple[int, ...] | None:
    rank = len(pads) // 2
    if rank < 3 or any(pads[:2]) or any(pads[rank : rank + 2]):
        return None
    return (*pads[2:rank], *pads[rank + 2 :])


def _wider(operator: Conv | MaxPool | AveragePool | Pad | Operator, pads: tuple[int, ...]) -> Operator:
    wider = tuple(own + more for own, more in zip(operator.attributes["pads"], pads, strict=True))
    return replace(operator, pads=wider)  # type: ignore[call-arg]
