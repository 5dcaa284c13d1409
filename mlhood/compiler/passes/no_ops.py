"""No-ops: nodes whose output is one of their inputs.

 1. Identity(x)                                                  ->  x     (Dropout is imported as Identity)
 2. Cast(x) to the element type of x                             ->  x
 3. Transpose(x) that leaves every axis in its place             ->  x
 4. Reshape, Flatten, Squeeze, Unsqueeze, Expand to x's shape    ->  x
 5. Pad(x) by nothing                                            ->  x
 6. Slice(x) of everything, forwards                             ->  x
 7. x + 0, x - 0, x * 1, x / 1, x to the power of 1              ->  x     unless the constant stretches x
 8. Concat(x)                                                    ->  x
 9. MaxPool, AveragePool(x) with windows of one element, stride 1 ->  x
10. GlobalAveragePool, GlobalMaxPool, ReduceMean, -Sum, -Prod, -Max, -Min(x) over axes that are one long, kept  ->  x
11. Relu, Clip(x) where x lies within the limits by what made it  ->  x     (Relu of Relu, of MaxPool of Relu, ...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.cast import Cast, Identity
from mlhood.compiler.operators.elementwise import Clip, Relu
from mlhood.compiler.operators.movement import Concat, Expand, Slice, Transpose
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.reduction import Reduction
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes.ranges import Range, limits_of, range_of, ranges
from mlhood.compiler.passes.rewriting import array_of, bypass, sweep


def remove_no_ops(graph: Graph) -> bool:
    """Remove the nodes that give back what they read; tell whether there were any."""
    changed = sweep(graph, _remove, *_SAME)
    return _remove_idle_limits(graph) or changed


def _remove(graph: Graph, node: Node) -> bool:
    kind = next(kind for kind in _SAME if isinstance(node.operator, kind))
    value = _SAME[kind](node)
    # also where the elements are the same, x may have been stretched to a longer shape
    if value is None or value.type != node.outputs[0].type:
        return False
    bypass(graph, node, value)
    return True


def _remove_idle_limits(graph: Graph) -> bool:
    if not any(isinstance(node.operator, (Relu, Clip)) for node in graph.nodes.values()):
        return False
    found = ranges(graph)

    def remove(graph: Graph, node: Node) -> bool:
        x = _input(node)
        if not _holds(node.operator, range_of(x, found)):
            return False
        bypass(graph, node, x)  # rule 11
        return True

    return sweep(graph, remove, Relu, Clip)


def _holds(operator: Operator, x: Range) -> bool:
    low, high = limits_of(operator)
    return low <= x[0] and x[1] <= high


def _input(node: Node) -> Value:
    value = node.inputs[0]
    if value is None:
        raise TypeError(f"{node.where} reads nothing")
    return value


def _always(node: Node) -> Value | None:
    return node.inputs[0]


def _transpose(node: Node) -> Value | None:
    operator = node.operator
    still = isinstance(operator, Transpose) and operator.permutation == tuple(range(len(operator.permutation)))
    return node.inputs[0] if still else None


def _pad(node: Node) -> Value | None:
    return node.inputs[0] if isinstance(node.operator, Pad) and not any(node.operator.pads) else None


def _slice(node: Node) -> Value | None:
    forwards = isinstance(node.operator, Slice) and all(step == 1 for step in node.operator.steps)
    return node.inputs[0] if forwards else None


def _pool(node: Node) -> Value | None:
    operator: Any = node.operator
    still = {*operator.kernel, *operator.strides} == {1} and not any(operator.pads)
    return node.inputs[0] if still and len(node.outputs) == 1 else None


def _reduction(node: Node) -> Value | None:
    operator = node.operator
    idle = isinstance(operator, Reduction) and not operator.transforms(node.outputs[0].type)
    return node.inputs[0] if idle else None


def _concat(node: Node) -> Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _neutral(number: int, commutes: bool) -> Callable[[Node], Value | None]:
    def same(node: Node) -> Value | None:
        a, b = node.inputs
        for x, other in ((a, b), (b, a)) if commutes else ((a, b),):
            array = array_of(other)
            if array is not None and array.dtype.kind in "iuf" and (array == number).all():
                return x
        return None

    return same


# What the node's output is, as far as the elements are concerned; None where it is something new.
_SAME: dict[type[Operator], Callable[[Node], Value | None]] = {
    Identity: _always,
    Cast: _always,
    Reshape: _always,
    Flatten: _always,
    Squeeze: _always,
    Unsqueeze: _always,
    Expand: _always,
    GlobalAveragePool: _always,
    GlobalMaxPool: _always,
    Transpose: _transpose,
    Pad: _pad,
    Slice: _slice,
    MaxPool: _pool,
    AveragePool: _pool,
    Reduction: _reduction,
    Concat: _concat,
    Add: _neutral(0, True),
    Sub: _neutral(0, False),
    Mul: _neutral(1, True),
    Div: _neutral(1, False),
    Pow: _neutral(1, False),
}
