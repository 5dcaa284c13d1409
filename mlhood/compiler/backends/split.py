"""A graph of which a back end runs the first part, and the interpreter what follows from lengths that data decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter, Observer
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.data_dependent import DataDependent


def has_data_dependent_lengths(graph: Graph) -> bool:
    """Return whether the length of an axis in a graph depends on data."""
    return any(isinstance(node.operator, DataDependent) for node in graph.nodes.values())


class Split:
    """A graph, prepared for execution in two parts.

    Args:
        graph: A graph; it must not be modified afterwards.
        prepare: Prepares the first part for the back end.
    """

    def __init__(self, graph: Graph, prepare: Callable[[Graph], Any]) -> None:
        self.graph = graph
        order, late = graph.topological(), set[Node]()
        for node in order:
            producers = (value.producer for value in node.inputs if value is not None)
            if isinstance(node.operator, DataDependent) or any(producer in late for producer in producers):
                late.add(node)
        first = [node for node in order if node not in late]
        last = [node for node in order if node in late]
        read = {value: None for node in last for value in node.inputs if value is not None}
        read |= dict.fromkeys(graph.outputs.values())
        between = [value for value in read if value.producer in set(first)]
        outputs = list(dict.fromkeys(value for value in graph.outputs.values() if value.producer not in set(first)))
        inputs = list(graph.placeholders.values())
        self._parts: list[Any] = [prepare(subgraph(graph, first, between, inputs))] if between else []
        if outputs:  # the first part, if there is one, checks the inputs
            self._parts.append(Interpreter(subgraph(graph, last, outputs, () if between else inputs)))

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once; see `Interpreter.run`."""
        arrays = dict(inputs)
        for i, part in enumerate(self._parts):
            arrays |= part.run({name: arrays[name] for name in part.graph.placeholders} if i else inputs, observe)
        return {name: np.asarray(arrays[value.name]) for name, value in self.graph.outputs.items()}


def subgraph(graph: Graph, nodes: list[Node], outputs: list[Value], inputs: Sequence[Value] = ()) -> Graph:
    """Return some nodes of a graph as a graph; what others compute, and they read, are its placeholders."""
    part, values = Graph(graph.name), dict[Value | None, Value | None]({None: None})

    def use(value: Value | None) -> Value | None:
        if isinstance(value, Constant) and value not in values:
            values[value] = part.constant(value.name, value.data, value.type.quantization)
        elif value is not None and value not in values:
            values[value] = part.placeholder(value.name, value.type)
        return values[value]

    for value in inputs:
        use(value)
    for node in nodes:
        copy = part.add(
            node.operator, *map(use, node.inputs), name=node.name, outputs=[value.name for value in node.outputs]
        )
        values.update(zip(node.outputs, copy.outputs, strict=True))
    for value in outputs:
        if (copied := use(value)) is not None:
            part.output(copied)
    return part
