"""What must hold for every graph, between all passes."""

from __future__ import annotations

from collections.abc import Iterator

from mlhood.compiler.hir.garbage_collection import gc_paused
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value, inferred
from mlhood.errors import CompilerError


@gc_paused()
def verify(graph: Graph) -> None:
    """Check a graph, in time linear in its size.

    Rules:
        1. Values and nodes are filed under their own names, which are not empty, and as what they are.
        2. Types are sound: known element types, no negative axis, quantisation only of integers, with positive
           scales, offsets in range, and as many as the axis is long.
        3. A constant's array has the constant's element type and shape.
        4. A node reads values of this graph only, and each of them lists the node as a user, and no other.
        5. A node's outputs name it as their producer, and have the types that its operator's rule gives.
        6. There is no cycle.
        7. There is at least one output, and all are values of this graph, made outputs by `Graph.output`.

    Raises:
        CompilerError: A rule does not hold; the error names the node or the value.
    """
    for rule in (_names, _types, _constants, _uses, _nodes, _outputs):
        for where, what in rule(graph):
            raise CompilerError(what, where=where)
    graph.topological()


def _names(graph: Graph) -> Iterator[tuple[str, str]]:
    for name, node in graph.nodes.items():
        if node.name != name or not name:
            yield node.where, f"filed under the name {name!r}"
    registered = {value.name: value for value in graph.values()}
    for value in registered.values():
        if not value.name or graph.value(value.name) is not value:
            yield _where(value), "filed under another name"
    for kind, filed in ((Placeholder, graph.placeholders), (Constant, graph.constants)):
        for name, value in filed.items():
            if value.name != name or registered.get(name) is not value or not isinstance(value, kind):
                yield _where(value), f"filed under the name {name!r} as a {kind.__name__.lower()}"


def _types(graph: Graph) -> Iterator[tuple[str, str]]:
    for value in graph.values():
        for fault in value.type.faults():
            yield _where(value), f"the type is not sound: {fault}"


def _constants(graph: Graph) -> Iterator[tuple[str, str]]:
    for constant in graph.constants.values():
        held = TensorType(constant.data.dtype.name, constant.data.shape, constant.type.quantization)
        if held != constant.type:
            yield _where(constant), f"the array is {held}, the type says {constant.type}"


def _uses(graph: Graph) -> Iterator[tuple[str, str]]:
    known = set(graph.values())
    read: set[tuple[Node, Value | None]] = set()  # since looking in the inputs would take as long as they are many
    for node in graph.nodes.values():
        read |= {(node, value) for value in node.inputs}
        for value in node.inputs:
            if value is not None and value not in known:
                yield node.where, f"reads {value.name!r}, which is not in the graph"
            if value is not None and node not in value.users:
                yield node.where, f"reads {value.name!r}, which does not list it as a user"
    for value in known:
        for user in value.users:
            if graph.nodes.get(user.name) is not user or (user, value) not in read:
                yield _where(value), f"lists {user.name!r} as a user, which does not read it"


def _nodes(graph: Graph) -> Iterator[tuple[str, str]]:
    known = set(graph.values())
    for node in graph.nodes.values():
        if any(value.producer is not node or value not in known for value in node.outputs):
            yield node.where, "an output does not name it as its producer, or is not in the graph"
        wanted, got = inferred(node), tuple(value.type for value in node.outputs)
        if wanted != got:
            yield node.where, f"makes {_listed(got)}, but its operator gives {_listed(wanted)}"
    for value in known:
        if value.producer is not None and not _is_made(value, value.producer, graph):
            yield _where(value), f"names {value.producer.name!r} as its producer, which does not make it"
        if value.producer is None and value.name not in graph.placeholders and value.name not in graph.constants:
            yield _where(value), "is neither a placeholder, nor a constant, nor made by a node"


def _is_made(value: Value, producer: Node, graph: Graph) -> bool:
    return graph.nodes.get(producer.name) is producer and value in producer.outputs


def _outputs(graph: Graph) -> Iterator[tuple[str, str]]:
    if not graph.outputs:
        yield f"graph {graph.name!r}", "it has no output"
    known = set(graph.values())
    for name, value in graph.outputs.items():
        if value not in known:
            yield f"output {name!r}", f"{value.name!r} is not in the graph"
        if not graph.is_output(value):
            yield f"output {name!r}", "it was not made an output by Graph.output"


def _where(value: Value) -> str:
    if value.producer is not None:
        return value.producer.where
    return f"{'constant' if isinstance(value, Constant) else 'placeholder'} {value.name!r}"


def _listed(types: tuple[TensorType, ...]) -> str:
    return ", ".join(f"{one.element}{list(one.shape)}" for one in types)
