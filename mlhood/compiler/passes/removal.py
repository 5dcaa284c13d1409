"""Removal of what a graph can do without: dead code, equal values, operators that do nothing, repeated reshapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.text import digest
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.cast import Cast, Identity
from mlhood.compiler.operators.elementwise import Clip, Relu, limits_of
from mlhood.compiler.operators.movement import Concat, Expand, Slice, Transpose
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.reduction import Reduction
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes.ranges import compute_ranges, range_of
from mlhood.compiler.passes.rewriting import (
    constant_array,
    defining_node,
    erase_if_unused,
    has_no_uses,
    has_one_use,
    replace_and_erase,
    reshape_between,
    sweep,
)

_RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)

_SAMPLE_SIZE = 16


def remove_dead_code(graph: Graph) -> bool:
    """Remove nodes and constants that no output depends on; return whether anything changed.

    1. node that no output depends on  ->  removed
    2. constant without uses           ->  removed

    Placeholders stay, because they are part of the graph's signature.
    """
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
    """Remove no-ops; return whether anything changed.

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
    changed = sweep(graph, _remove_no_op, *_PRESERVES_ELEMENTS, *_NEUTRAL_ELEMENTS)
    return _remove_unreachable_limits(graph) or changed


def _remove_no_op(graph: Graph, node: Node) -> bool:
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


def merge_reshapes(graph: Graph) -> bool:
    """Merge consecutive operators that only change the shape; return whether anything changed.

    1. reshape(reshape(x))  ->  reshape(x)    reshape: one of Reshape, Flatten, Squeeze, Unsqueeze
    2. reshape(reshape(x))  ->  x             if the result has x's shape, even if the inner one has other uses
    """
    return sweep(graph, _merge_reshape, *_RESHAPES)


def _merge_reshape(graph: Graph, node: Node) -> bool:
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


def merge_common_subexpressions(graph: Graph) -> bool:
    """Merge equal constants and equal nodes; return whether anything changed.

    1. constants of the same type and elements  ->  the first of them
    2. y = f(a, ...), z = f(a, ...)              ->  z replaced by y; f with the same attributes
    """
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
