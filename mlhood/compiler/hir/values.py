"""Values and nodes, of which a graph consists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mlhood.compiler.hir.operator import Operator, as_tuple, footprint, infer_output_types, locate_error
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.errors import CompilerError


class Value:
    """One tensor of the graph, the node that produces it, and the nodes that use it.

    Args:
        name: Unique among the graph's values.
        type: Element type, shape and quantisation.
        producer: The node that produces it; None for a placeholder or a constant.
    """

    def __init__(self, name: str, type: TensorType, producer: Node | None = None) -> None:
        self.name = name
        self.type = type
        self.producer = producer
        self.users: dict[Node, None] = {}  # an ordered set

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type})"


class Placeholder(Value):
    """An input of the graph, known when it runs."""


class Constant(Value):
    """A weight, or another tensor that is known at compile time; its array is read-only."""

    def __init__(self, name: str, data: np.ndarray, quantization: Quantization | None = None) -> None:
        super().__init__(name, TensorType(data.dtype.name, data.shape, quantization))
        self.data = data.view()
        self.data.flags.writeable = False


class Node:
    """One application of an operator.

    Args:
        name: Unique among the graph's nodes.
        operator: The operator with its attributes.
        inputs: The values that it reads; None for an optional one that is left out.
    """

    def __init__(self, name: str, operator: Operator, inputs: tuple[Value | None, ...]) -> None:
        self.name = name
        self.operator = operator
        self.inputs = inputs
        self.outputs: tuple[Value, ...] = ()

    @property
    def where(self) -> str:
        """The node in error messages."""
        return f"node {self.name!r} ({self.operator.name})"

    def __repr__(self) -> str:
        return f"Node({self.name!r}, {self.operator})"


def infer_types(node: Node) -> tuple[TensorType, ...]:
    """Return the types of a node's outputs by its operator's type rule.

    Raises:
        CompilerError: The inputs are invalid for the operator; the error names the node.
    """
    types = [None if value is None else value.type for value in node.inputs]
    return infer_output_types(node.operator, types, node.where)


def needed_memory(node: Node, shapes: Sequence[tuple[int, ...] | None]) -> int:
    """Return the bytes that a node needs, before it runs: by its type rule on the actual shapes of its inputs.

    Raises:
        CompilerError: The shapes are invalid for the operator; the error names the node.
    """
    types = [
        None if value is None or shape is None else TensorType(value.type.element, shape, value.type.quantization)
        for value, shape in zip(node.inputs, shapes, strict=True)
    ]
    try:
        return footprint(node.operator, types, as_tuple(node.operator.infer(*types)))
    except CompilerError as error:
        raise locate_error(error, node.where) from error


def topological(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes, each after those among them whose outputs it reads; see `Graph.topological`."""
    members = dict.fromkeys(nodes)
    done: dict[Node, bool] = {}  # False while the node's predecessors are being visited
    order: list[Node] = []
    for root in members:
        stack = [root]
        while stack:
            node = stack[-1]
            if done.get(node):
                stack.pop()
                continue
            predecessors = [] if node in done else _producers(node, members)
            pending = [other for other in predecessors if not done.get(other)]
            if cyclic := [other for other in pending if other in done or other is node]:
                raise CompilerError("the graph has a cycle", where=cyclic[0].where)
            if pending:
                done[node] = False
                stack += reversed(pending)
                continue
            done[node] = True
            order.append(node)
            stack.pop()
    return order


def _producers(node: Node, members: dict[Node, None]) -> list[Node]:
    producers = dict.fromkeys(value.producer for value in node.inputs if value is not None)
    return [producer for producer in producers if producer is not None and producer in members]
