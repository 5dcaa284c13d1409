"""Removal of no-ops: nodes whose output equals one of their inputs.

 1. Identity(x)                                                  ->  x     (Dropout is imported as Identity)
 2. Cast(x) to the element type of x                             ->  x
 3. Transpose(x) with the identity permutation                   ->  x
 4. Reshape, Flatten, Squeeze, Unsqueeze, Expand to x's shape    ->  x
 5. Pad(x) with pads of 0                                        ->  x
 6. Slice(x) of all elements, with step 1                        ->  x
 7. x + 0, x - 0, x * 1, x / 1, x to the power of 1              ->  x     unless the constant broadcasts x
 8. Concat(x)                                                    ->  x
 9. MaxPool, AveragePool(x) with windows of one element, stride 1 ->  x
10. GlobalAveragePool, GlobalMaxPool, ReduceMean, -Sum, -Prod, -Max, -Min(x) over axes of size 1, keepdims=1  ->  x
11. Relu, Clip(x) with limits that x's range never exceeds       ->  x     (Relu of Relu, of MaxPool of Relu, ...)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Range
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


def remove_no_ops(graph: Graph) -> bool:
    """Remove no-ops; return whether anything changed."""
    changed = sweep(graph, _remove, *_SAME_ELEMENTS)
    return _remove_unreachable_limits(graph) or changed


def _remove(graph: Graph, node: Node) -> bool:
    kind = next(kind for kind in _SAME_ELEMENTS if isinstance(node.operator, kind))
    value = _SAME_ELEMENTS[kind](node)
    # the types differ if x was broadcast
    if value is None or value.type != node.outputs[0].type:
        return False
    replace_and_erase(graph, node, value)
    return True


def _remove_unreachable_limits(graph: Graph) -> bool:
    if not any(isinstance(node.operator, (Relu, Clip)) for node in graph.nodes.values()):
        return False
    ranges = compute_ranges(graph)

    def remove(graph: Graph, node: Node) -> bool:
        x = _input(node)
        if not _is_within_limits(node.operator, range_of(x, ranges)):
            return False
        replace_and_erase(graph, node, x)  # rule 11
        return True

    return sweep(graph, remove, Relu, Clip)


def _is_within_limits(operator: Operator, x: Range) -> bool:
    low, high = limits_of(operator)
    return low <= x[0] and x[1] <= high


def _input(node: Node) -> Value:
    value = node.inputs[0]
    if value is None:
        raise TypeError(f"{node.where} has no input")
    return value


def _first_input(node: Node) -> Value | None:
    return node.inputs[0]


def _transpose(node: Node) -> Value | None:
    operator = node.operator
    is_identity = isinstance(operator, Transpose) and operator.permutation == tuple(range(len(operator.permutation)))
    return node.inputs[0] if is_identity else None


def _pad(node: Node) -> Value | None:
    return node.inputs[0] if isinstance(node.operator, Pad) and not any(node.operator.pads) else None


def _slice(node: Node) -> Value | None:
    has_unit_steps = isinstance(node.operator, Slice) and all(step == 1 for step in node.operator.steps)
    return node.inputs[0] if has_unit_steps else None


def _pool(node: Node) -> Value | None:
    operator: Any = node.operator
    is_identity = {*operator.kernel, *operator.strides} == {1} and not any(operator.pads)
    return node.inputs[0] if is_identity and len(node.outputs) == 1 else None


def _reduction(node: Node) -> Value | None:
    operator = node.operator
    is_identity = isinstance(operator, Reduction) and not operator.changes_single
    return node.inputs[0] if is_identity else None


def _concat(node: Node) -> Value | None:
    return node.inputs[0] if len(node.inputs) == 1 else None


def _neutral_element(element: int, commutative: bool) -> Callable[[Node], Value | None]:
    def other_operand(node: Node) -> Value | None:
        a, b = node.inputs
        for x, other in ((a, b), (b, a)) if commutative else ((a, b),):
            array = constant_array(other)
            if array is not None and array.dtype.kind in "iuf" and (array == element).all():
                return x
        return None

    return other_operand


# Returns the input whose elements a node's output has if the shape is the same; None if there is none.
_SAME_ELEMENTS: dict[type[Operator], Callable[[Node], Value | None]] = {
    Identity: _first_input,
    Cast: _first_input,
    Reshape: _first_input,
    Flatten: _first_input,
    Squeeze: _first_input,
    Unsqueeze: _first_input,
    Expand: _first_input,
    GlobalAveragePool: _first_input,
    GlobalMaxPool: _first_input,
    Transpose: _transpose,
    Pad: _pad,
    Slice: _slice,
    MaxPool: _pool,
    AveragePool: _pool,
    Reduction: _reduction,
    Concat: _concat,
    Add: _neutral_element(0, True),
    Sub: _neutral_element(0, False),
    Mul: _neutral_element(1, True),
    Div: _neutral_element(1, False),
    Pow: _neutral_element(1, False),
}
