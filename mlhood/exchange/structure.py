"""What ONNX's own checker takes for granted: that names are text, and that functions end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from mlhood.errors import ExchangeError

# Nodes that a model may have once its functions are written out; one that doubles thirty times has a billion.
MOST_NODES = 10**6
# Functions that call functions that call functions.
DEEPEST = 50

Key = tuple[str, str, str]


def check_text(proto: onnx.ModelProto, where: str) -> None:
    """Check that all names are text, which protobuf does not.

    Raises:
        ExchangeError: One is not UTF-8.
    """
    for name in _names(proto):
        # As protobuf is built, what is no text comes as bytes, or fails when it is read.
        if not isinstance(name, str):
            raise ExchangeError(
                "a name in the model is no text",
                where=where,
                expected="UTF-8",
                got=repr(name[:40]),
                todo="the file is damaged: export the model again, or copy the file again",
            )


def _names(proto: onnx.ModelProto) -> Iterator[str | bytes]:
    graph = proto.graph
    try:
        yield graph.name
        yield from (text for entry in proto.opset_import for text in [entry.domain])
        for node in (*graph.node, *(node for function in proto.functions for node in function.node)):
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        for function in proto.functions:
            yield from (function.name, function.domain, *function.input, *function.output)
        yield from (tensor.name for tensor in graph.initializer)
        for value in (*graph.input, *graph.output):
            yield value.name
            yield from (axis.dim_param for axis in value.type.tensor_type.shape.dim)
    except UnicodeDecodeError as error:
        yield error.object


def check_functions(proto: onnx.ModelProto, where: str) -> None:
    """Check that no function of the model calls itself, and that written out they are not too many nodes.

    Raises:
        ExchangeError: One does, or they are.
    """
    bodies = {_key(one.domain, one.name, one.overload): _callees(one.node) for one in proto.functions}
    sizes: dict[Key, int] = {}
    for key in bodies:
        _measure(key, bodies, sizes, where)
    total = sum(sizes.get(callee, 1) for callee in _callees(proto.graph.node)) if bodies else 0
    if total > MOST_NODES:
        raise _refused("the model's functions are too large once they are written out", where, f"{total:,} nodes")


def _measure(root: Key, bodies: dict[Key, list[Key]], sizes: dict[Key, int], where: str) -> None:
    """Find the size of a function, and of all that it calls, without recursion of our own."""
    path: dict[Key, Iterator[Key]] = {} if root in sizes else {root: iter(bodies[root])}
    while path:
        key, rest = next(reversed(path.items()))
        callee = next((one for one in rest if one in bodies and one not in sizes), None)
        if callee is None:
            sizes[key] = min(sum(sizes.get(one, 1) for one in bodies[key]), 2**63)
            del path[key]
        elif callee in path or len(path) == DEEPEST:
            what = "a function calls itself" if callee in path else f"functions call each other {DEEPEST} deep"
            raise _refused(what, where, "::".join(callee[:2]))
        else:
            path[callee] = iter(bodies[callee])


def _callees(nodes: Iterable[onnx.NodeProto]) -> list[Key]:
    """Return what the nodes call, those in subgraphs too; operators are called by the same name."""
    found: list[Key] = []
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        found.append(_key(node.domain, node.op_type, node.overload))
        for attribute in node.attribute:
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                waiting += graph.node
    return found


def _key(domain: str, name: str, overload: str) -> Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _refused(what: str, where: str, got: str) -> ExchangeError:
    return ExchangeError(
        what,
        where=where,
        expected=f"functions that end, of {MOST_NODES:,} nodes at most",
        got=got,
        todo="export the model without functions",
    )
