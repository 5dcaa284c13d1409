"""The part of a quantised graph that holds integers only: what the neural processor runs of a whole network."""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.quantized import Dequantize, Quantize


def integer_graph(graph: Graph) -> Graph:
    """Return a graph without the nodes that quantise its inputs and dequantise its outputs.

    What such a `Quantize` gives is a placeholder of the new graph, under its own name; outputs keep their names.

    Args:
        graph: A quantised graph.
    """
    new = Graph(graph.name)
    found: dict[Value, Value] = {}
    for value in graph.placeholders.values():
        if any(not _quantizes(node) for node in value.users):
            found[value] = new.placeholder(value.name, value.type)
    for node in graph.topological():
        if _quantizes(node):
            found[node.outputs[0]] = new.placeholder(node.outputs[0].name, node.outputs[0].type)
        elif not _dequantizes_output(graph, node):
            _copy(node, new, found)
    for name, value in graph.outputs.items():
        producer = value.producer
        source = producer.inputs[0] if producer is not None and _dequantizes_output(graph, producer) else value
        new.output(_found(source, new, found), name)
    return new


def _quantizes(node: Node) -> bool:
    """Return whether a node quantises an input of the graph."""
    x = node.inputs[0] if node.inputs else None
    return isinstance(node.operator, Quantize) and x is not None and x.producer is None


def _dequantizes_output(graph: Graph, node: Node) -> bool:
    y = node.outputs[0]
    return isinstance(node.operator, Dequantize) and not y.users and graph.is_output(y)


def _found(value: Value | None, new: Graph, found: dict[Value, Value]) -> Value:
    """Return a value of the new graph; a constant is added when it is first used."""
    if isinstance(value, Constant) and value not in found:
        found[value] = new.constant(value.name, value.data, value.type.quantization)
    return found[value]  # type: ignore[index]


def _copy(node: Node, new: Graph, found: dict[Value, Value]) -> None:
    inputs = [None if value is None else _found(value, new, found) for value in node.inputs]
    copied = new.add(node.operator, *inputs, name=node.name, outputs=[value.name for value in node.outputs])
    found.update(zip(node.outputs, copied.outputs, strict=True))
