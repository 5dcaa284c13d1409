"""Utilities for passes: applying a rule to all nodes, queries, and replacement of nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.shape import Flatten, Reshape
from mlhood.errors import CompilerError

Rule = Callable[[Graph, Node], bool]


def sweep(graph: Graph, rule: Rule, *operators: type[Operator]) -> bool:
    """Apply a rule once to each node with one of these operators, in topological order.

    A rule sees its earlier rewrites when it is applied to later nodes, so that one sweep rewrites a chain of nodes. A
    graph without such nodes is only scanned.

    Args:
        graph: Modified in place.
        rule: Rewrites the graph around a node, and returns whether it did.
        operators: The operators of the nodes to rewrite.

    Returns:
        Whether anything changed.
    """
    if not any(isinstance(node.operator, operators) for node in graph.nodes.values()):
        return False
    changed = False
    for node in graph.topological():
        if isinstance(node.operator, operators) and graph.nodes.get(node.name) is node:
            changed |= rule(graph, node)
    return changed


# -- queries


def defining_node(value: Value | None, *operators: type[Operator]) -> Node | None:
    """Return the node that defines a value as its only output, if it has one of these operators."""
    node = None if value is None else value.producer
    if node is None or len(node.outputs) != 1 or not isinstance(node.operator, operators):
        return None
    return node


def has_one_use(graph: Graph, value: Value) -> bool:
    """Return whether exactly one node uses a value, and it is not an output of the graph."""
    return len(value.users) == 1 and not graph.is_output(value)


def has_no_uses(graph: Graph, value: Value) -> bool:
    """Return whether no node uses a value, and it is not an output of the graph."""
    return not value.users and not graph.is_output(value)


def constant_array(value: Value | None) -> np.ndarray | None:
    """Return the array of a constant that is not quantised; None for any other value."""
    return value.data if isinstance(value, Constant) and value.type.quantization is None else None


def try_infer(operator: Operator, *inputs: TensorType | None) -> TensorType | None:
    """Return the type of a single-output operator's result, or None if the inputs are invalid."""
    try:
        return operator.infer(*inputs)
    except CompilerError:
        return None


def type_of(operand: Value | np.ndarray) -> TensorType:
    """Return the type of a value, or of a constant that is to hold an array."""
    return operand.type if isinstance(operand, Value) else TensorType(operand.dtype.name, operand.shape)


def reshape_between(before: TensorType, after: TensorType) -> Operator | None:
    """Return an operator that reshapes a tensor of type `before` to `after`; None if that cannot be guaranteed."""
    if 0 in (*before.shape, *after.shape):  # a 0 in Reshape's shape copies an axis
        return None
    is_copied = [i < before.rank and size == before.shape[i] for i, size in enumerate(after.shape)]
    sizes = zip(after.shape, is_copied, strict=True)
    shape = tuple(size if isinstance(size, int) else 0 if copied else -1 for size, copied in sizes)
    candidates = (Flatten(1), Reshape(shape)) if before.rank > 1 else (Reshape(shape),)
    return next((operator for operator in candidates if try_infer(operator, before) == after), None)


# -- rewrites


def replace_and_erase(graph: Graph, node: Node, value: Value) -> None:
    """Replace all uses of a node's single output by another value, and erase the node."""
    graph.replace_all_uses(node.outputs[0], value)
    graph.remove(node)


def erase_if_unused(graph: Graph, node: Node) -> None:
    """Erase a node with a single output if nothing uses the output, unless it has been erased before."""
    if graph.nodes.get(node.name) is node and has_no_uses(graph, node.outputs[0]):
        graph.remove(node)


def fuse(graph: Graph, first: Node, last: Node, operator: Operator, *inputs: Value | None) -> Node:
    """Replace two nodes by one; `last` must be the only user of `first`.

    The new node has the name of `first`, which does the main work, and its output that of the output of `last`.

    Raises:
        CompilerError: The inputs are invalid for the operator, or its result has another type; the graph is unchanged.
    """
    fused = graph.replace(last, operator, *inputs)
    graph.remove(first)
    graph.rename_node(fused, first.name)
    return fused


def transfer_name(graph: Graph, new: Value | None, old: Value | None) -> None:
    """If a constant replaced another one that has no uses left, erase the old one and give its name to the new one.

    If both inputs of a node were the same constant, the first replacement gets the name.
    """
    if not isinstance(new, Constant) or not isinstance(old, Constant) or new is old:
        return
    if graph.constants.get(old.name) is old and has_no_uses(graph, old):
        graph.remove_constant(old)
        graph.rename(new, old.name)
