"""Checks that ONNX's own checker lacks: names are valid UTF-8, and functions are not recursive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from mlhood.errors import ExchangeError

# Limit on the nodes after inlining: thirty functions that each call the next one twice expand to a billion.
MAX_NODES = 10**6
MAX_CALL_DEPTH = 50

Key = tuple[str, str, str]


def check_text(proto: onnx.ModelProto, where: str) -> None:
    """Check that all names are valid UTF-8, which protobuf does not.

    Raises:
        ExchangeError: A name is not UTF-8.
    """
    for name in _names(proto):
        # Depending on its implementation, protobuf returns invalid UTF-8 as bytes or raises on access.
        if not isinstance(name, str):
            raise ExchangeError(
                "a name in the model is not valid text",
                where=where,
                expected="UTF-8",
                got=repr(name[:40]),
                todo="the file is damaged: export the model again, or copy the file again",
            )


def _names(proto: onnx.ModelProto) -> Iterator[str | bytes]:
    graph = proto.graph
    try:
        yield graph.name
        yield from (entry.domain for entry in proto.opset_import)
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
    """Check that no function of the model is recursive, and that inlining them does not give too many nodes.

    Raises:
        ExchangeError: A function calls itself, calls are nested too deeply, or the inlined model is too large.
    """
    bodies = {_key(f.domain, f.name, f.overload): _callees(f.node) for f in proto.functions}
    sizes: dict[Key, int] = {}
    for key in bodies:
        _compute_sizes(key, bodies, sizes, where)
    total = sum(sizes.get(callee, 1) for callee in _callees(proto.graph.node)) if bodies else 0
    if total > MAX_NODES:
        raise _invalid_functions("the model is too large once its functions are inlined", where, f"{total:,} nodes")


def _compute_sizes(root: Key, bodies: dict[Key, list[Key]], sizes: dict[Key, int], where: str) -> None:
    """Compute the inlined size of a function and of all its callees, by depth-first search on an explicit stack."""
    stack: dict[Key, Iterator[Key]] = {} if root in sizes else {root: iter(bodies[root])}
    while stack:
        key, callees = next(reversed(stack.items()))
        callee = next((c for c in callees if c in bodies and c not in sizes), None)
        if callee is None:
            sizes[key] = min(sum(sizes.get(c, 1) for c in bodies[key]), 2**63)
            del stack[key]
        elif callee in stack or len(stack) == MAX_CALL_DEPTH:
            what = "a function calls itself" if callee in stack else f"function calls nest deeper than {MAX_CALL_DEPTH}"
            raise _invalid_functions(what, where, "::".join(callee[:2]))
        else:
            stack[callee] = iter(bodies[callee])


def _callees(nodes: Iterable[onnx.NodeProto]) -> list[Key]:
    """Return the keys of all functions and operators that the nodes call, including those in subgraphs."""
    callees: list[Key] = []
    worklist = list(nodes)
    while worklist:
        node = worklist.pop()
        callees.append(_key(node.domain, node.op_type, node.overload))
        for attribute in node.attribute:
            for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                worklist += graph.node
    return callees


def _key(domain: str, name: str, overload: str) -> Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _invalid_functions(what: str, where: str, got: str) -> ExchangeError:
    return ExchangeError(
        what,
        where=where,
        expected=f"non-recursive functions, {MAX_NODES:,} nodes at most",
        got=got,
        todo="export the model without functions",
    )
