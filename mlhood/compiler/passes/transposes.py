"""Sinking of Transposes towards the outputs, until they cancel."""

from __future__ import annotations

from itertools import islice

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator, Permutation
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.shape import Flatten, Reshape
from mlhood.compiler.passes.rewriting import (
    constant_array,
    defining_node,
    erase_if_unused,
    has_one_use,
    replace_and_erase,
    reshape_between,
    sweep,
    transfer_name,
    try_infer,
    type_of,
)

# Limit on the users of a value that are searched for an inverse Transpose, to avoid quadratic time.
_MAX_USERS = 64


def sink_transposes(graph: Graph) -> bool:
    """Sink Transposes towards the outputs and cancel inverse ones; return whether anything changed.

    Graphs exported from frameworks with channels last have a pair of Transposes around each convolution. With T_p a
    Transpose by the permutation p, and f an elementwise operator:

     1. T_q(T_p(x))              ->  x                       if q is the inverse of p, even if T_p(x) has other uses
     2. T_q(T_p(x))              ->  T(x) by their composition
     3. f(T_p(x))                ->  T_p(f(x))
     4. f(T_p(a), T_p(b), c, ..) ->  T_p(f(a, b, c', ...))   c' is T_q(c) with q the inverse of p: for a constant c,
                                                             computed; for any other, if the graph contains it already
     5. Concat(T_p(a), c, ...)   ->  T_p(Concat(a, c', ...)), with the axis permuted
     6. Pad, Slice, Softmax, reductions with keepdims=1 (T_p(x))  ->  T_p of the same on x, with the axes permuted
     7. Squeeze, reductions with keepdims=0 (T_p(x))   ->  T of the remaining axes, of the same on x

     8. T(x) that moves only axes of size 1            ->  Reshape(x)
     9. FullyConnected(flatten(T(x)), w)               ->  FullyConnected(flatten(x), w with its columns permuted)

    Rules 3 to 7 are applied only if they do not increase the number of Transposes, which they would if a Transpose has
    other uses. Every rule removes a Transpose or moves it closer to the outputs, so the pass terminates. Rules 8 and 9
    are applied last, because a Reshape does not sink.
    """
    if not any(isinstance(node.operator, Transpose) for node in graph.nodes.values()):
        return False
    if sweep(graph, _merge, Transpose) | sweep(graph, _move, Operator):
        return True
    return sweep(graph, _absorb_into_dense, FullyConnected) | sweep(graph, _replace_by_reshape, Transpose)


def _move(graph: Graph, node: Node) -> bool:
    if isinstance(node.operator, Transpose):
        return _merge(graph, node)
    return _sink(graph, node)


# -- rules 1 and 2


def _merge(graph: Graph, node: Node) -> bool:
    inner = defining_node(node.inputs[0], Transpose)
    x = inner.inputs[0] if inner else None
    if inner is None or x is None:
        return False
    first, second = _permutation(inner), _permutation(node)
    composed = tuple(first[axis] for axis in second)
    if _is_identity(composed):  # rule 1
        replace_and_erase(graph, node, x)
    elif has_one_use(graph, inner.outputs[0]):  # rule 2
        graph.replace(node, Transpose(composed), x)
    else:
        return False
    erase_if_unused(graph, inner)
    return True


def _permutation(node: Node) -> Permutation:
    return node.operator.attributes["permutation"]


# -- rules 3 to 7


def _sink(graph: Graph, node: Node) -> bool:
    transposes: dict[Permutation, dict[Node, None]] = {}
    for value in node.inputs:
        if (transpose := defining_node(value, Transpose)) is not None:
            transposes.setdefault(_permutation(transpose), {})[transpose] = None
    return any(
        not _is_identity(permutation) and _sink_through(graph, node, permutation, list(group))
        for permutation, group in transposes.items()
    )


def _sink_through(graph: Graph, node: Node, permutation: Permutation, transposes: list[Node]) -> bool:
    types = [value.type for value in (*node.inputs, *node.outputs) if value is not None]
    if any(type.quantization is not None and type.quantization.axis is not None for type in types):
        return False  # the axis would have to be permuted, too
    sunk = node.operator.sink_transpose(permutation)
    candidates = [_before_transpose(value, permutation) for value in node.inputs]
    inputs = [operand for operand in candidates if operand is not None]
    if sunk is None or len(inputs) < len(candidates):
        return False
    operator, after = sunk
    outputs = [transpose.outputs[0] for transpose in transposes]
    removes_one = any(has_one_use(graph, y) and all(operand is not y for operand in inputs) for y in outputs)
    if not _is_identity(after) and not removes_one:
        return False
    result = try_infer(operator, *map(type_of, inputs))
    if result is None or try_infer(Transpose(after), result) != node.outputs[0].type:
        return False
    _swap(graph, node, operator, after, inputs)
    for transpose in transposes:
        erase_if_unused(graph, transpose)
    return True


def _swap(graph: Graph, node: Node, operator: Operator, after: Permutation, inputs: list[Value | np.ndarray]) -> None:
    """Replace a node by Transpose(operator(inputs)); arrays become constants, named after those that they replace."""
    pairs = list(zip(node.inputs, inputs, strict=True))
    operands = [new if isinstance(new, Value) else _constant(graph, new, old) for old, new in pairs]
    name = node.name
    if _is_identity(after):
        graph.replace(node, operator, *operands)
    else:
        inner = graph.add(operator, *operands, name=name, outputs=[name])
        outer = graph.replace(node, Transpose(after), inner.outputs[0])
        graph.rename_node(outer, f"{name}.transpose")
        graph.rename_node(inner, name)
    for new, old in zip(operands, node.inputs, strict=True):
        transfer_name(graph, new, old)


def _constant(graph: Graph, array: np.ndarray, old: Value | None) -> Value:
    return graph.constant("constant" if old is None else old.name, np.ascontiguousarray(array))


def _before_transpose(value: Value | None, permutation: Permutation) -> Value | np.ndarray | None:
    """Return a value x with T_p(x) equal to the given one: the Transpose's input, or a constant's array permuted."""
    transpose = defining_node(value, Transpose)
    if transpose is not None and _permutation(transpose) == permutation:
        return transpose.inputs[0]
    array = constant_array(value)
    if array is None and value is not None:
        return _existing_transpose(value, _inverse(permutation))
    if array is None or array.ndim > len(permutation):
        return None
    if array.size == 1 and array.ndim < len(permutation):
        return value
    full_rank = array.reshape((1,) * (len(permutation) - array.ndim) + array.shape)
    return full_rank.transpose(_inverse(permutation))


def _existing_transpose(value: Value, permutation: Permutation) -> Value | None:
    for user in islice(value.users, _MAX_USERS):
        transpose = defining_node(user.outputs[0], Transpose) if user.outputs else None
        if transpose is not None and _permutation(transpose) == permutation:
            return transpose.outputs[0]
    return None


def _is_identity(permutation: Permutation) -> bool:
    return permutation == tuple(range(len(permutation)))


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))


# -- rules 8 and 9


def _replace_by_reshape(graph: Graph, node: Node) -> bool:
    x, permutation = node.inputs[0], _permutation(node)
    if x is None:
        return False
    moving = [axis for axis in permutation if x.type.shape[axis] != 1]
    operator = reshape_between(x.type, node.outputs[0].type) if moving == sorted(moving) else None
    if operator is None:
        return False
    graph.replace(node, operator, x)  # rule 8
    return True


def _absorb_into_dense(graph: Graph, node: Node) -> bool:
    flatten = defining_node(node.inputs[0], Reshape, Flatten)
    transpose = defining_node(flatten.inputs[0], Transpose) if flatten else None
    weight = constant_array(node.inputs[1])
    x = transpose.inputs[0] if transpose else None
    if flatten is None or transpose is None or x is None or weight is None:
        return False
    image, matrix, permutation = transpose.outputs[0].type, flatten.outputs[0].type, _permutation(transpose)
    operator = reshape_between(x.type, matrix)
    keeps_rows = matrix.rank == 2 and permutation[0] == 0 and image.shape[0] == matrix.shape[0]
    has_static_rows = all(isinstance(size, int) for size in image.shape[1:])
    if not (keeps_rows and has_static_rows and has_one_use(graph, flatten.outputs[0])) or operator is None:
        return False
    columns = weight.reshape(-1, *map(int, image.shape[1:]))
    columns = columns.transpose(_inverse(permutation)).reshape(weight.shape)  # rule 9
    old, name = node.inputs[1], flatten.name
    new_weight = _constant(graph, columns, old)
    new_flatten = graph.add(operator, x, name=name)
    graph.replace_input(node, 0, new_flatten.outputs[0])
    graph.replace_input(node, 1, new_weight)
    transfer_name(graph, new_weight, old)
    graph.remove(flatten)
    graph.rename_node(new_flatten, name)
    erase_if_unused(graph, transpose)
    return True
