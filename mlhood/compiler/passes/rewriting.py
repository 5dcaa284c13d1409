"""What the passes share: walking over a graph, asking about it, and putting nodes in the place of others."""

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
    """Try a rule once on each node of these operators, each after what it reads.

    What a rule makes of one node, the rule sees when it comes to the nodes behind it, so that a whole chain is done in
    one sweep. A graph without such nodes costs one look at each.

    Args:
        graph: Edited in place.
        rule: Edits the graph around a node, and tells whether it did.
        operators: Which nodes to try.

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


# -- asking


def made_by(value: Value | None, *operators: type[Operator]) -> Node | None:
    """Return the node that makes a value as its only output, if it is of one of these operators."""
    node = None if value is None else value.producer
    if node is None or len(node.outputs) != 1 or not isinstance(node.operator, operators):
        return None
    return node


def is_read_once(graph: Graph, value: Value) -> bool:
    """Tell whether a single node reads a value, and no output of the graph is it."""
    return len(value.users) == 1 and not graph.is_output(value)


def is_unread(graph: Graph, value: Value) -> bool:
    """Tell whether no node and no output of the graph reads a value."""
    return not value.users and not graph.is_output(value)


def array_of(value: Value | None) -> np.ndarray | None:
    """Return the array of a constant whose numbers are just numbers; None for anything else."""
    return value.data if isinstance(value, Constant) and value.type.quantization is None else None


def infer(operator: Operator, *inputs: TensorType | None) -> TensorType | None:
    """Return the type that an operator of one output gives; None if it does not take these inputs."""
    try:
        return operator.infer(*inputs)
    except CompilerError:
        return None


def reshape_between(before: TensorType, after: TensorType) -> Operator | None:
    """Return an operator that gives a tensor the shape of `after`; None if none is sure to do so."""
    if 0 in (*before.shape, *after.shape):  # in Reshape a 0 copies an axis
        return None
    same = [size == before.shape[i] if i < before.rank else False for i, size in enumerate(after.shape)]
    sizes = zip(after.shape, same, strict=True)
    shape = tuple(size if isinstance(size, int) else 0 if copy else -1 for size, copy in sizes)
    choices = (Flatten(1), Reshape(shape)) if before.rank > 1 else (Reshape(shape),)
    return next((one for one in choices if infer(one, before) == after), None)


# -- editing


def bypass(graph: Graph, node: Node, value: Value) -> None:
    """Let all that read a node's single output read another value, and remove the node."""
    graph.replace_all_uses(node.outputs[0], value)
    graph.remove(node)


def fuse(graph: Graph, first: Node, last: Node, operator: Operator, *inputs: Value | None) -> Node:
    """Put one node in the place of two, of which `last` is the only reader of `first`.

    The new node's output has the name of what `last` made, the node itself that of `first`, which does the main work.

    Raises:
        CompilerError: The operator does not take these inputs, or gives another type; the graph is as it was.
    """
    fused = graph.replace(last, operator, *inputs)
    graph.remove(first)
    graph.rename_node(fused, first.name)
    return fused


def inherit(graph: Graph, heir: Constant, old: Value | None) -> None:
    """Take out a constant that nothing reads any more, and give its name to the one computed from it.

    One constant may have been two inputs of a node: then it has gone already, and the first heir has its name.
    """
    if isinstance(old, Constant) and graph.constants.get(old.name) is old and is_unread(graph, old):
        graph.remove_constant(old)
        graph.rename(heir, old.name)
