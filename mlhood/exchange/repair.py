"""Repair models as tools write them, which ONNX Runtime runs and ONNX's checker refuses.

1. Nodes that are not in topological order are sorted, in the graph, in the graphs within it and in functions:
   converters to float16, for example, append their casts at the end.
2. Domains that nodes use without an import are imported in their newest version.
3. Nodes of the domain "ai.onnx" get the shorter name of the same domain, "".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter

import onnx

from mlhood.errors import ExchangeError
from mlhood.exchange.functions import STANDARD, all_bodies, subgraphs

_MAX_LISTED_NODES = 10


def repair(proto: onnx.ModelProto, where: str, *, in_place: bool) -> onnx.ModelProto:
    """Return a model with sorted nodes and with all imports, the model itself if nothing is missing.

    Args:
        proto: The model.
        where: Its name in error messages.
        in_place: Whether the model may be modified; otherwise a repaired copy is returned.

    Raises:
        ExchangeError: Nodes depend on each other in a cycle.
    """
    graphs = [*all_bodies(proto.graph)]
    bodies = [*graphs, *(body for function in proto.functions for body in all_bodies(function))]
    orders = [_topological_order(body.node, where) for body in bodies]
    renamed = [node for body in bodies for node in body.node if node.domain == "ai.onnx"]
    imports = _missing_imports(proto, {node.domain for graph in graphs for node in graph.node})
    if not (imports or renamed) and all(order == sorted(order) for order in orders):
        return proto
    if not in_place:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        return repair(copy, where, in_place=True)
    proto.opset_import.extend(imports)
    for node in renamed:
        node.domain = ""
    for body, order in reversed([*zip(bodies, orders, strict=True)]):  # graphs before those that contain them
        nodes = [onnx.NodeProto.FromString(body.node[i].SerializeToString()) for i in order]
        del body.node[:]
        body.node.extend(nodes)
    return proto


def _topological_order(nodes: Sequence[onnx.NodeProto], where: str) -> list[int]:
    """Return the positions of nodes in an order in which each comes after those whose results it reads.

    Sorted nodes are not moved.

    Raises:
        ExchangeError: Nodes depend on each other in a cycle.
    """
    producers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in filter(None, node.output):
            producers.setdefault(name, i)
    needs = [[producers[name] for name in _reads(node) if name in producers] for node in nodes]
    if all(j < i for i, before in enumerate(needs) for j in before):
        return [*range(len(nodes))]
    try:
        return [*TopologicalSorter(dict(enumerate(needs))).static_order()]
    except CycleError as error:
        raise _cycle([nodes[i] for i in error.args[1][1:]], where) from None


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, and those that the graphs in its attributes read from around it."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        read = {name for inner in graph.node for name in _reads(inner)} | {value.name for value in graph.output}
        read -= {value.name for value in (*graph.input, *graph.initializer)}
        yield from sorted(read.difference(*(inner.output for inner in graph.node)))


def _missing_imports(proto: onnx.ModelProto, domains: set[str]) -> list[onnx.OperatorSetIdProto]:
    missing = set(map(_short, domains)) - {_short(entry.domain) for entry in proto.opset_import}
    versions = dict.fromkeys(sorted(missing), 1)
    for schema in onnx.defs.get_all_schemas() if missing else ():
        if schema.domain in missing:
            versions[schema.domain] = max(schema.since_version, versions[schema.domain])
    return [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _short(domain: str) -> str:
    return "" if domain in STANDARD else domain


def _cycle(nodes: Sequence[onnx.NodeProto], where: str) -> ExchangeError:
    names = [repr(node.name or node.output[0]) for node in nodes]
    shown, hidden = ", ".join(names[:_MAX_LISTED_NODES]), len(names) - _MAX_LISTED_NODES
    return ExchangeError(
        "nodes of the model depend on each other in a cycle",
        where=where,
        expected="a graph without cycles",
        got=f"{shown} and {hidden} more" if hidden > 0 else shown,
        todo="correct the inputs of one of these nodes, or export the model again",
    )
