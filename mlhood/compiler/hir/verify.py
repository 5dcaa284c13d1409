"""The invariants of every graph, which hold before and after each pass."""

from __future__ import annotations

from collections.abc import Iterator

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value, infer_types
from mlhood.errors import CompilerError


@gc_paused()
def verify(graph: Graph) -> None:
    """Check a graph, in time linear in its size.

    Rules:
        1. Values and nodes are registered under their own, non-empty names, and as what they are.
        2. Types are valid: known element types, no negative axis, quantisation of integers only, with positive scales,
           offsets in range, and as many of both as the axis is long.
        3. A constant's array has the constant's element type and shape.
        4. A node reads only values of this graph, and is a user of exactly these.
        5. A node's outputs have it as their producer, and the types that its operator infers.
        6. There is no cycle.
        7. There is at least one output, and all are values of this graph, declared by `Graph.output`.

    Raises:
        CompilerError: A rule is violated; the error names the node or the value.
    """
    for rule in (_names, _types, _constants, _uses, _nodes, _outputs):
        for where, what in rule(graph):
            raise CompilerError(what, where=where)
    graph.topological()


def _names(graph: Graph) -> Iterator[tuple[str, str]]:
    for name, node in graph.nodes.items():
        if node.name != name or not name:
            yield node.where, f"registered under the name {name!r}"
    registered = {value.name: value for value in graph.values()}
    for value in registered.values():
        if not value.name or graph.value(value.name) is not value:
            yield _where(value), "registered under another name"
    for kind, values in ((Placeholder, graph.placeholders), (Constant, graph.constants)):
        for name, value in values.items():
            if value.name != name or registered.get(name) is not value or not isinstance(value, kind):
                yield _where(value), f"registered under the name {name!r} as a {kind.__name__.lower()}"


def _types(graph: Graph) -> Iterator[tuple[str, str]]:
    for value in graph.values():
        for violation in value.type.violations():
            yield _where(value), f"the type is invalid: {violation}"


def _constants(graph: Graph) -> Iterator[tuple[str, str]]:
    for constant in graph.constants.values():
        actual = TensorType(constant.data.dtype.name, constant.data.shape, constant.type.quantization)
        if actual != constant.type:
            yield _where(constant), f"the array is {actual}, the declared type {constant.type}"


def _uses(graph: Graph) -> Iterator[tuple[str, str]]:
    values = set(graph.values())
    reads: set[tuple[Node, Value | None]] = set()  # searching the inputs would not take constant time
    for node in graph.nodes.values():
        reads |= {(node, value) for value in node.inputs}
        for value in node.inputs:
            if value is not None and value not in values:
                yield node.where, f"reads {value.name!r}, which is not in the graph"
            if value is not None and node not in value.users:
                yield node.where, f"reads {value.name!r}, which does not list it as a user"
    for value in values:
        for user in value.users:
            if graph.nodes.get(user.name) is not user or (user, value) not in reads:
                yield _where(value), f"lists {user.name!r} as a user, which does not read it"


def _nodes(graph: Graph) -> Iterator[tuple[str, str]]:
    values = set(graph.values())
    for node in graph.nodes.values():
        if any(value.producer is not node or value not in values for value in node.outputs):
            yield node.where, "an output does not have it as its producer, or is not in the graph"
        expected, actual = infer_types(node), tuple(value.type for value in node.outputs)
        if expected != actual:
            yield node.where, f"has outputs of {_format(actual)}, but its operator infers {_format(expected)}"
    for value in values:
        producer = value.producer
        if producer is None:
            if value.name not in graph.placeholders and value.name not in graph.constants:
                yield _where(value), "is neither a placeholder, nor a constant, nor an output of a node"
        elif graph.nodes.get(producer.name) is not producer or value not in producer.outputs:
            yield _where(value), f"has {producer.name!r} as its producer, which does not produce it"


def _outputs(graph: Graph) -> Iterator[tuple[str, str]]:
    if not graph.outputs:
        yield f"graph {graph.name!r}", "the graph has no output"
    values = set(graph.values())
    for name, value in graph.outputs.items():
        if value not in values:
            yield f"output {name!r}", f"{value.name!r} is not in the graph"
        if not graph.is_output(value):
            yield f"output {name!r}", "the output was not declared by Graph.output"


def _where(value: Value) -> str:
    if value.producer is not None:
        return value.producer.where
    return f"{'constant' if isinstance(value, Constant) else 'placeholder'} {value.name!r}"


def _format(types: tuple[TensorType, ...]) -> str:
    return ", ".join(f"{type.element}{list(type.shape)}" for type in types)
