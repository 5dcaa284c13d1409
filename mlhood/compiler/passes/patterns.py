"""Matching of operators that exporters write as several nodes: scalars, monomials of one value, and interior nodes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow
from mlhood.compiler.passes.rewriting import constant_array, defining_node

# Of constants in float32, which an exporter may have computed from one another.
_RELATIVE_TOLERANCE = 1e-6
_MOST_FACTORS = 8


def is_close(number: float | None, expected: float) -> bool:
    """Return whether a number is a constant of a formula, up to the rounding of float32."""
    return number is not None and math.isclose(number, expected, rel_tol=_RELATIVE_TOLERANCE)


def scalar(value: Value | None, kinds: str = "f") -> float | None:
    """Return the number that all elements of a constant have, if its dtype is one of the kinds; else None."""
    array = constant_array(value)
    if array is None or not array.size or array.dtype.kind not in kinds or (array != array.flat[0]).any():
        return None  # also for NaN, which differs from itself
    return array.flat[0].item()


def orders(node: Node) -> Iterator[tuple[Value, Value]]:
    """Yield the two inputs of a node in both orders."""
    a, b = node.inputs[:2]
    if a is not None and b is not None:
        yield a, b
        yield b, a


def only_user(graph: Graph, value: Value) -> Node | None:
    """Return the node that alone uses a value, once; None if there is none, or the value is an output of the graph."""
    if len(value.users) != 1 or graph.is_output(value):
        return None
    (node,) = value.users
    return node if node.inputs.count(value) == 1 else None


def plus(value: Value | None, number: float) -> tuple[Value, Node] | None:
    """Return x and the node if a value is x + number; None otherwise."""
    node = defining_node(value, Add)
    if node is None:
        return None
    return next(((x, node) for x, other in orders(node) if is_close(scalar(other), number)), None)


@dataclass(frozen=True)
class Monomial:
    """factor x^degree, and the nodes that compute it."""

    factor: float
    degree: int
    nodes: tuple[Node, ...] = ()

    def times(self, other: Monomial, node: Node) -> Monomial:
        """Return the product, which a node computes."""
        return Monomial(self.factor * other.factor, self.degree + other.degree, (*self.nodes, *other.nodes, node))


def monomial(value: Value | None, x: Value, depth: int = _MOST_FACTORS) -> Monomial | None:
    """Return a value as a monomial of x, by products, quotients by numbers and powers; None if it is none."""
    if value is x:
        return Monomial(1.0, 1)
    number = scalar(value)
    if number is not None:
        return Monomial(number, 0)
    node = defining_node(value, Mul, Div, Pow)
    if node is None or not depth:
        return None
    base, exponent = monomial(node.inputs[0], x, depth - 1), scalar(node.inputs[1])
    if base is None:
        return None
    if isinstance(node.operator, Mul):
        other = monomial(node.inputs[1], x, depth - 1)
        return None if other is None else base.times(other, node)
    if isinstance(node.operator, Div):
        return base.times(Monomial(1 / exponent, 0), node) if exponent else None
    if exponent not in (2.0, 3.0):
        return None
    power = int(exponent)
    return Monomial(base.factor**power, base.degree * power, (*base.nodes, node))


def replace_pattern(
    graph: Graph, last: Node, interior: Collection[Node], operator: Operator, *inputs: Value | None
) -> bool:
    """Replace the last node of a pattern, and erase the others, if nothing else reads what they compute.

    Args:
        graph: Modified in place.
        last: The node that computes the pattern's result; the new node takes its names.
        interior: The other nodes.
        operator: What computes the same.
        inputs: Its inputs.

    Returns:
        Whether it was replaced: not if a value of an interior node has another use or is an output.
    """
    nodes = dict.fromkeys((*interior, last))
    for node in nodes:
        for value in node.outputs if node is not last else ():
            if graph.is_output(value) or not value.users.keys() <= nodes.keys():
                return False
    new = graph.replace(last, operator, *inputs)
    pending = [node for node in nodes if node is not last]
    while pending:
        unused = [node for node in pending if not any(value.users for value in node.outputs)]
        for node in unused:
            graph.remove(node)
        pending = [node for node in pending if node not in unused]
    return graph.nodes.get(new.name) is new
