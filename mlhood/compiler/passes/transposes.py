"""Transposes: moved towards the outputs until they meet and cancel.

Graphs from frameworks with channels last are full of pairs, one before and one behind each convolution. With T_p being
a Transpose by p, and f treating every element alone:

 1. T_q(T_p(x))              ->  x                       where q undoes p, even if others read T_p(x)
 2. T_q(T_p(x))              ->  T(x) by both
 3. f(T_p(x))                ->  T_p(f(x))
 4. f(T_p(a), T_p(b), c, ..) ->  T_p(f(a, b, c', ...))   c a constant, c' laid out like a; or c any value of which the
                                                         graph has T_q(c) already, q undoing p, and c' that one
 5. Concat(T_p(a), c, ...)   ->  T_p(Concat(a, c', ...)) likewise, along the axis that p put there
 6. Pad, Slice, Softmax, reductions kept (T_p(x))  ->  T_p of the same on x, its axes those that p put there
 7. Squeeze, reductions not kept (T_p(x))          ->  T of the axes that are left, of the same on x

 8. T(x) that moves only axes that are one long    ->  Reshape(x)
 9. FullyConnected(flatten(T(x)), w)               ->  FullyConnected(flatten(x), w with its columns moved)

Rules 3 to 7 apply where no more Transposes come out than went in: those that others read too stay where they are.
Every rule removes a Transpose, or takes one away and puts one nearer to the outputs, so there is an end. Rules 8 and 9
come last: what rule 8 has made into a Reshape moves no further.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Permutation, supports
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.shape import Flatten, Reshape
from mlhood.compiler.passes.rewriting import (
    array_of,
    bypass,
    infer,
    inherit,
    is_read_once,
    is_unread,
    made_by,
    reshape_between,
    sweep,
)

# Of a value that very many nodes read, not all are looked at: the cost must not grow with their square.
_READERS = 64


def sink_transposes(graph: Graph) -> bool:
    """Move Transposes towards the outputs and cancel those that meet; tell whether anything changed."""
    if not any(isinstance(node.operator, Transpose) for node in graph.nodes.values()):
        return False
    if sweep(graph, _merge, Transpose) | sweep(graph, _move, Operator):
        return True
    return sweep(graph, _absorb, FullyConnected) | sweep(graph, _respell, Transpose)


def _move(graph: Graph, node: Node) -> bool:
    if isinstance(node.operator, Transpose):
        return _merge(graph, node)
    return supports(type(node.operator), "sink_transpose") and _sink(graph, node)


# -- rules 1 and 2


def _merge(graph: Graph, node: Node) -> bool:
    inner = made_by(node.inputs[0], Transpose)
    x = inner.inputs[0] if inner else None
    if inner is None or x is None:
        return False
    first, second = _permutation(inner), _permutation(node)
    both = tuple(first[axis] for axis in second)
    if _is_identity(both):  # rule 1
        bypass(graph, node, x)
    elif is_read_once(graph, inner.outputs[0]):  # rule 2
        graph.replace(node, Transpose(both), x)
    else:
        return False
    _drop(graph, inner)
    return True


def _permutation(node: Node) -> Permutation:
    return node.operator.attributes["permutation"]


def _drop(graph: Graph, node: Node) -> None:
    if graph.nodes.get(node.name) is node and is_unread(graph, node.outputs[0]):
        graph.remove(node)


# -- rules 3 to 7


def _sink(graph: Graph, node: Node) -> bool:
    found = dict.fromkeys(one for value in node.inputs if (one := made_by(value, Transpose)))
    for permutation in dict.fromkeys(map(_permutation, found)):
        if not _is_identity(permutation) and _sink_through(
            graph, node, permutation, [one for one in found if _permutation(one) == permutation]
        ):
            return True
    return False


def _sink_through(graph: Graph, node: Node, permutation: Permutation, transposes: list[Node]) -> bool:
    moved = node.operator.sink_transpose(permutation) if _is_quantized_whole(node) else None
    inputs = [_laid_out(value, permutation) for value in node.inputs]
    if moved is None or any(one is None for one in inputs):
        return False
    operator, after = moved
    if not _is_identity(after) and not any(_goes(graph, one, inputs) for one in transposes):
        return False
    made = infer(operator, *(_type(one) for one in inputs if one is not None))
    if made is None or infer(Transpose(after), made) != node.outputs[0].type:
        return False
    _exchange(graph, node, operator, after, [one for one in inputs if one is not None])
    for one in transposes:
        _drop(graph, one)
    return True


def _goes(graph: Graph, transpose: Node, inputs: list[Value | np.ndarray | None]) -> bool:
    """Tell whether nothing will read a Transpose any more, when its only reader reads these inputs instead."""
    return is_read_once(graph, transpose.outputs[0]) and all(one is not transpose.outputs[0] for one in inputs)


def _exchange(
    graph: Graph, node: Node, operator: Operator, after: Permutation, inputs: list[Value | np.ndarray]
) -> None:
    """Put Transpose(operator(inputs)) in a node's place; arrays become constants, named after those they come from."""
    pairs = list(zip(node.inputs, inputs, strict=True))
    read = [one if isinstance(one, Value) else graph.constant(_name(old), one) for old, one in pairs]
    name = node.name
    if _is_identity(after):
        graph.replace(node, operator, *read)
    else:
        inner = graph.add(operator, *read, name=name, outputs=[name])
        outer = graph.replace(node, Transpose(after), inner.outputs[0])
        graph.rename_node(outer, f"{name}.transpose")
        graph.rename_node(inner, name)
    for heir, old in zip(read, node.inputs, strict=True):
        if isinstance(heir, Constant) and heir is not old:
            inherit(graph, heir, old)


def _name(value: Value | None) -> str:
    return "constant" if value is None else value.name


def _type(one: Value | np.ndarray) -> TensorType:
    return one.type if isinstance(one, Value) else TensorType(one.dtype.name, one.shape)


def _laid_out(value: Value | None, permutation: Permutation) -> Value | np.ndarray | None:
    """Return what an operator before the Transpose reads: the Transpose's own input, or a constant's elements moved."""
    before = made_by(value, Transpose)
    if before is not None and _permutation(before) == permutation:
        return before.inputs[0]
    array = array_of(value)
    if array is None and value is not None:
        return _turned_already(value, _inverse(permutation))
    if array is None or array.ndim > len(permutation):
        return None
    if array.size == 1 and array.ndim < len(permutation):
        return value
    full = array.reshape((1,) * (len(permutation) - array.ndim) + array.shape)
    return np.ascontiguousarray(full.transpose(_inverse(permutation)))


def _turned_already(value: Value, permutation: Permutation) -> Value | None:
    readers = (made_by(user.outputs[0], Transpose) for user in islice(value.users, _READERS) if user.outputs)
    return next((one.outputs[0] for one in readers if one is not None and _permutation(one) == permutation), None)


def _is_identity(permutation: Permutation) -> bool:
    return permutation == tuple(range(len(permutation)))


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


def _is_quantized_whole(node: Node) -> bool:
    """Tell whether no quantisation runs along an axis, which would have to move too."""
    types = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    return all(type.quantization is None or type.quantization.axis is None for type in types)


# -- rules 8 and 9


def _respell(graph: Graph, node: Node) -> bool:
    x, permutation = node.inputs[0], _permutation(node)
    if x is None:
        return False
    moving = [axis for axis in permutation if x.type.shape[axis] != 1]
    operator = reshape_between(x.type, node.outputs[0].type) if moving == sorted(moving) else None
    if operator is None:
        return False
    graph.replace(node, operator, x)  # rule 8
    return True


def _absorb(graph: Graph, node: Node) -> bool:
    flat = made_by(node.inputs[0], Reshape, Flatten)
    turned = made_by(flat.inputs[0], Transpose) if flat else None
    weight = array_of(node.inputs[1])
    x = turned.inputs[0] if turned else None
    if flat is None or turned is None or x is None or weight is None or not is_read_once(graph, flat.outputs[0]):
        return False
    rows, made = turned.outputs[0].type, flat.outputs[0].type
    operator = reshape_between(x.type, made)
    whole = made.rank == 2 and _permutation(turned)[0] == 0 and rows.shape[0] == made.shape[0]
    if not whole or operator is None or not all(isinstance(size, int) for size in rows.shape[1:]):
        return False
    columns = weight.reshape(-1, *map(int, rows.shape[1:]))
    columns = columns.transpose(_inverse(_permutation(turned))).reshape(weight.shape)  # rule 9
    old, name = node.inputs[1], flat.name
    heavy = graph.constant(_name(old), np.ascontiguousarray(columns))
    flattened = graph.add(operator, x, name=name)
    graph.replace_input(node, 0, flattened.outputs[0])
    graph.replace_input(node, 1, heavy)
    inherit(graph, heavy, old)
    graph.remove(flat)
    graph.rename_node(flattened, name)
    _drop(graph, turned)
    return True
