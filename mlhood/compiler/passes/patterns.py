"""Matching of operators that exporters write as several nodes: scalars, products of powers, and interior nodes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.passes.rewriting import constant_array, defining_node

# Of constants in float32, which an exporter may have computed from one another.
_RELATIVE_TOLERANCE = 1e-6
_MOST_FACTORS = 8
_EXPONENTS: dict[type[Operator], float] = {
    each: {"Sqrt": 0.5, "Reciprocal": -1.0}[each.__name__]
    for each in FUNCTIONS
    if each.__name__ in ("Sqrt", "Reciprocal")
}


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
class Product:
    """factor times powers of values, and the nodes that compute it."""

    factor: float
    powers: Mapping[Value, float]
    nodes: tuple[Node, ...] = ()

    def equals(self, factor: float, powers: Mapping[Value, float]) -> bool:
        """Return whether it is this product, up to the rounding of float32."""
        return is_close(self.factor, factor) and self.powers == powers

    def times(self, other: Product) -> Product | None:
        """Return the product of both; None if that cancels a power, which may be that of 0."""
        powers = dict(self.powers)
        for value, exponent in other.powers.items():
            powers[value] = powers.get(value, 0) + exponent
            if powers[value] * exponent <= 0:
                return None
        return Product(self.factor * other.factor, powers, (*self.nodes, *other.nodes))

    def power(self, exponent: float | None) -> Product | None:
        """Return a power of it; None for roots of products, and for powers of 0."""
        plain = self.factor == 1 and set(self.powers.values()) == {1}
        if not exponent or not self.factor or not (exponent == int(exponent) or (plain and len(self.powers) == 1)):
            return None
        powers = {value: each * exponent for value, each in self.powers.items()}
        return Product(self.factor**exponent, powers, self.nodes)


def product_of(graph: Graph, value: Value | None, depth: int = _MOST_FACTORS) -> Product:
    """Return a value as a product of numbers and of powers of values that are no products, or are used elsewhere."""
    number = scalar(value)
    if value is None or number is not None:
        return Product(math.nan if number is None else number, {})
    node = defining_node(value, Mul, Div, Pow, *_EXPONENTS)
    if node is None or not depth or (depth < _MOST_FACTORS and only_user(graph, value) is None):
        return Product(1.0, {value: 1})
    found: Product | None = product_of(graph, node.inputs[0], depth - 1)
    if isinstance(node.operator, Mul | Div):
        other: Product | None = product_of(graph, node.inputs[1], depth - 1)
        other = other.power(-1) if other and isinstance(node.operator, Div) else other
        found = found.times(other) if found and other else None
    else:
        found = found.power(_EXPONENTS.get(type(node.operator)) or scalar(node.inputs[1])) if found else None
    return Product(1.0, {value: 1}) if found is None else replace(found, nodes=(*found.nodes, node))


def outer_products(graph: Graph, node: Node) -> Iterator[tuple[Node, Product]]:
    """Yield the products and quotients that alone use a node's result, and those that use these, each as a product."""
    for _ in range(_MOST_FACTORS):
        user = only_user(graph, node.outputs[0])
        if user is None or not isinstance(user.operator, Mul | Div):
            return
        node = user
        yield node, product_of(graph, node.outputs[0])


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
