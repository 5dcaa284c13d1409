"""Functions of a model: they are checked, as a small file must not unfold to a huge graph, and inlined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx.inliner import inline_local_functions

from mlhood.errors import ExchangeError
from mlhood.exchange.external import without_weights

# Limits on what inlining adds: thirty functions that each call the next one twice expand to a billion nodes, and a
# constant in a function is there again for every call.
MAX_INLINED_NODES = 2**16
MAX_INLINED_BYTES = 2**28
MAX_CALL_DEPTH = 50

STANDARD = ("", "ai.onnx")
Key = tuple[str, str, str]
Body = onnx.GraphProto | onnx.FunctionProto


def check_functions(proto: onnx.ModelProto, where: str) -> None:
    """Check that no function of the model is recursive, and that inlining them does not give too much.

    Raises:
        ExchangeError: A function calls itself, calls are nested too deeply, or the inlined model is too large.
    """
    bodies = {_key(f.domain, f.name, f.overload): f for f in proto.functions}
    if not bodies:
        return
    callees = {key: _callees(body) for key, body in bodies.items()}
    own_bytes = {key: sum(node.ByteSize() for node in body.node) for key, body in bodies.items()}
    sizes: dict[Key, _Size] = {}
    for key in bodies:
        _size(key, callees, own_bytes, sizes, where)
    called = [sizes[callee] for callee in _callees(proto.graph) if callee in sizes]
    nodes, size = sum(each.nodes for each in called), sum(each.bytes for each in called)
    if nodes > MAX_INLINED_NODES or size > MAX_INLINED_BYTES + sum(own_bytes.values()):
        got = f"{nodes:,} nodes of {size:,} bytes"
        raise _invalid_functions("the model is too large once its functions are inlined", where, got)


def inline_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions: their nodes replace the calls.

    ONNX's inliner does not know the default values of attributes. They are added to the calls, of outer functions
    first: whether a call passes an attribute on depends on the call around it. An operator of the standard takes
    precedence over a function of its name, as in ONNX Runtime and in ONNX's reference implementation.

    Args:
        proto: A model that `check_functions` accepts; not modified.
    """
    functions = {_key(f.domain, f.name, f.overload): f for f in proto.functions if f.domain not in STANDARD}
    inlined = without_weights(proto)
    while functions:
        nested = {callee for function in functions.values() for callee in _callees(function)}
        outer = {key: function for key, function in functions.items() if key not in nested}
        functions = {key: functions[key] for key in functions if key in nested}
        for node in all_nodes(inlined.graph):
            if function := outer.get(_key(node.domain, node.op_type, node.overload)):
                given = {attribute.name for attribute in node.attribute}
                node.attribute.extend(default for default in function.attribute_proto if default.name not in given)
        del inlined.functions[:]
        inlined.functions.extend(outer.values())
        inlined = inline_local_functions(inlined)
    del inlined.functions[:]
    del inlined.graph.initializer[:]
    inlined.graph.initializer.extend(proto.graph.initializer)
    return inlined


@dataclass(frozen=True)
class _Size:
    """What a call of a function becomes: number of nodes, and their size in bytes."""

    nodes: int
    bytes: int


def _size(
    key: Key,
    callees: dict[Key, list[Key]],
    own_bytes: dict[Key, int],
    sizes: dict[Key, _Size],
    where: str,
    path: tuple[Key, ...] = (),
) -> _Size:
    """Return the inlined size of a function, and remember it and those of its callees; `path` are its callers."""
    if key not in callees:  # an operator
        return _Size(1, 0)
    if key in path or len(path) == MAX_CALL_DEPTH:
        what = "a function calls itself" if key in path else f"function calls nest deeper than {MAX_CALL_DEPTH}"
        raise _invalid_functions(what, where, "::".join(key[:2]))
    if key not in sizes:
        called = [_size(callee, callees, own_bytes, sizes, where, (*path, key)) for callee in callees[key]]
        total = own_bytes[key] + sum(size.bytes for size in called)
        sizes[key] = _Size(min(sum(size.nodes for size in called), 2**63), min(total, 2**63))
    return sizes[key]


def _callees(body: Body) -> list[Key]:
    """Return the keys of all functions and operators that the nodes call, including those in subgraphs."""
    return [_key(node.domain, node.op_type, node.overload) for node in all_nodes(body)]


def all_nodes(body: Body) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph or function, and of all graphs within it, such as the branches of an If."""
    for each in all_bodies(body):
        yield from each.node


def all_bodies(body: Body) -> Iterator[Body]:
    """Yield a graph or function, and all graphs within it, each before those that it contains."""
    bodies = [body]
    while bodies:
        each = bodies.pop()
        yield each
        bodies += [graph for node in each.node for graph in subgraphs(node)]


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs in a node's attributes."""
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        graphs += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return graphs


def _key(domain: str, name: str, overload: str) -> Key:
    return "" if domain == "ai.onnx" else domain, name, overload


def _invalid_functions(what: str, where: str, got: str) -> ExchangeError:
    return ExchangeError(
        what,
        where=where,
        expected=f"non-recursive functions, {MAX_INLINED_NODES:,} nodes and {MAX_INLINED_BYTES:,} bytes at most",
        got=got,
        todo="export the model without functions",
    )
