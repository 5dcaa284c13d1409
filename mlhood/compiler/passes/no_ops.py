"""Removal of no-ops: nodes whose output equals one of their inputs.

 1. Identity(x)                                                  ->  x     (Dropout is imported as Identity)
 2. Cast(x) to the element type of x                             ->  x
 3. Transpose(x) with the identity permutation                   ->  x
 4. Reshape, Flatten, Squeeze, Unsqueeze, Expand to x's shape    ->  x
 5. Pad(x) with pads of 0                                        ->  x
 6. Slice(x) of all elements, with step 1                        ->  x
 7. x + -0, x - 0, x * 1, x / 1, x to the power of 1             ->  x     unless the constant broadcasts x;
    not x + 0 of reals, which makes 0 of -0
 8. Concat(x)                                                    ->  x
 9. MaxPool, AveragePool(x) with windows of one element, stride 1 ->  x
10. GlobalAveragePool, GlobalMaxPool, ReduceMean, -Sum, -Prod, -Max, -Min(x) over axes of size 1, keepdims=1  ->  x
11. Relu, Clip(x) with limits that x's range never exceeds       ->  x     (Relu of Relu, of MaxPool of Relu, ...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.cast import Cast, Identity
from mlhood.compiler.operators.elementwise import Clip, Relu, limits_of
from mlhood.compiler.operators.movement import Concat, Expand, Slice, Transpose
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.reduction import Reduction
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes.ranges import compute_ranges, range_of
from mlhood.compiler.passes.rewriting import constant_array, replace_and_erase, sweep


def _has_unit_window(node: Node) -> bool:
    operator: Any = node.operator
    return {*operator.kernel, *operator.strides} == {1} and not any(operator.pads) and len(node.outputs) == 1


# Whether a node's output has the elements of its first input if the shape is the same.
_PRESERVES_ELEMENTS: dict[type[Operator], Callable[[Any], bool]] = {
    **dict.fromkeys((Identity, Cast, Reshape, Flatten, Squeeze, Unsqueeze, Expand), lambda node: True),
    **dict.fromkeys((GlobalAveragePool, GlobalMaxPool), lambda node: True),
    Transpose: lambda node: node.operator.permutation == tuple(range(len(node.operator.permutation))),
    Pad: lambda node: not any(node.operator.pads),
    Slice: lambda node: all(step == 1 for step in node.operator.steps),
    MaxPool: _has_unit_window,
    AveragePool: _has_unit_window,
    Reduction: lambda node: not node.operator.changes_single,
    Concat: lambda node: len(node.inputs) == 1,
}
_NEUTRAL_ELEMENTS: dict[type[Operator], int] = {Add: 0, Sub: 0, Mul: 1, Div: 1, Pow: 1}


def remove_no_ops(graph: Graph) -> bool:
    """Remove no-ops; return whether anything changed."""
    changed = sweep(graph, _remove, *_PRESERVES_ELEMENTS, *_NEUTRAL_ELEMENTS)
    return _remove_unreachable_limits(graph) or changed


def _remove(graph: Graph, node: Node) -> bool:
    value = _equal_input(node)
    # the types differ if x was broadcast
    if value is None or value.type != node.outputs[0].type:
        return False
    replace_and_erase(graph, node, value)
    return True


def _equal_input(node: Node) -> Value | None:
    """Return the input whose elements a node's output has if the shape is the same; None if there is none."""
    for kind, preserves_elements in _PRESERVES_ELEMENTS.items():
        if isinstance(node.operator, kind):
            return node.inputs[0] if preserves_elements(node) else None
    element = next(element for kind, element in _NEUTRAL_ELEMENTS.items() if isinstance(node.operator, kind))
    for x, other in (node.inputs, node.inputs[::-1]) if node.operator.commutative else (node.inputs,):
        array = constant_array(other)
        if array is None or array.dtype.kind not in "iuf" or not (array == element).all():
            continue
        if element == 0 and array.dtype.kind == "f" and (np.signbit(array) != isinstance(node.operator, Add)).any():
            continue
        return x
    return None


def _remove_unreachable_limits(graph: Graph) -> bool:
    if not any(isinstance(node.operator, (Relu, Clip)) for node in graph.nodes.values()):
        return False
    ranges = compute_ranges(graph)

    def remove(graph: Graph, node: Node) -> bool:
        x, (low, high) = node.inputs[0], limits_of(node.operator)
        if x is None:
            return False
        minimum, maximum = range_of(x, ranges)
        if low <= minimum and maximum <= high:
            replace_and_erase(graph, node, x)  # rule 11
            return True
        return False

    return sweep(graph, remove, Relu, Clip)
