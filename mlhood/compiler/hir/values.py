"""What a graph is made of: values and nodes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mlhood.compiler.hir.operator import Operator, as_tuple, located
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.errors import CompilerError


class Value:
    """One tensor of the graph: what a node makes, and which nodes use it.

    Args:
        name: Unique among the graph's values.
        type: Element type, shape and quantisation.
        producer: The node that makes it; None for a placeholder or a constant.
    """

    def __init__(self, name: str, type: TensorType, producer: Node | None = None) -> None:
        self.name = name
        self.type = type
        self.producer = producer
        self.users: dict[Node, None] = {}  # a set that keeps its order

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"


class Placeholder(Value):
    """An input of the graph, known when it runs."""


class Constant(Value):
    """A weight, or another tensor known when compiling; its array cannot be written to."""

    def __init__(self, name: str, data: np.ndarray, quantization: Quantization | None = None) -> None:
        super().__init__(name, TensorType(data.dtype.name, data.shape, quantization))
        self.data = data.view()
        self.data.flags.writeable = False


class Node:
    """One use of an operator.

    Args:
        name: Unique among the graph's nodes.
        operator: What it computes, with its attributes.
        inputs: The values it reads; None for an optional one that is left out.
    """

    def __init__(self, name: str, operator: Operator, inputs: tuple[Value | None, ...]) -> None:
        self.name = name
        self.operator = operator
        self.inputs = inputs
        self.outputs: tuple[Value, ...] = ()

    @property
    def where(self) -> str:
        """How errors name this node."""
        return f"node {self.name!r} ({self.operator.name})"

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.operator})"


def inferred(node: Node) -> tuple[TensorType, ...]:
    """Return the types that the operator's rule gives for a node's outputs.

    Raises:
        CompilerError: The operator does not take these inputs; the error names the node.
    """
    least, most = node.operator.arity
    missing = [str(i) for i in range(least) if i >= len(node.inputs) or node.inputs[i] is None]
    if missing or (most is not None and len(node.inputs) > most):
        expected = f"{least}" if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
        raise CompilerError("wrong number of inputs", where=node.where, expected=expected, got=len(node.inputs))
    try:
        types = as_tuple(node.operator.infer(*(None if value is None else value.type for value in node.inputs)))
    except CompilerError as error:
        raise located(error, node.where) from error
    for type in types:
        if excess := type.excess:
            raise CompilerError("what the node makes is too large", where=node.where, got=excess)
    return types


def topological(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes, each after those among them whose outputs it reads; see `Graph.topological`."""
    members = dict.fromkeys(nodes)
    done: dict[Node, bool] = {}  # False while what the node reads is being placed
    order: list[Node] = []
    for root in members:
        pending = [root]
        while pending:
            node = pending[-1]
            if done.get(node):
                pending.pop()
                continue
            before = [] if node in done else _producers(node, members)
            waiting = [other for other in before if not done.get(other)]
            if cyclic := [other for other in waiting if other in done or other is node]:
                raise CompilerError("the graph has a cycle", where=cyclic[0].where)
            if waiting:
                done[node] = False
                pending += reversed(waiting)
                continue
            done[node] = True
            order.append(node)
            pending.pop()
    return order


def _producers(node: Node, members: dict[Node, None]) -> list[Node]:
    found = [value.producer for value in node.inputs if value is not None]
    return [producer for producer in dict.fromkeys(found) if producer is not None and producer in members]
