"""A graph of which a back end runs the first part, and the interpreter what follows from lengths that data decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter, Observer
from mlhood.compiler.hir.graph import Graph, subgraph
from mlhood.compiler.hir.lengths import names_in
from mlhood.compiler.hir.values import Node, Value


def has_data_dependent_lengths(graph: Graph) -> bool:
    """Return whether the length of an axis in a graph depends on data."""
    names = _names(graph.placeholders.values())
    return any(not names.issuperset(_names(node.outputs)) for node in graph.nodes.values())


def _names(values: Iterable[Value]) -> set[str]:
    """Return the names in the lengths of values; those that no input of a graph has depend on data."""
    axes = (axis for value in values for axis in value.type.shape if isinstance(axis, str))
    return {name for axis in axes for name in names_in(axis)}


class Split:
    """A graph, prepared for execution in two parts.

    Args:
        graph: A graph; it must not be modified afterwards.
        prepare: Prepares the first part for the back end.
    """

    def __init__(self, graph: Graph, prepare: Callable[[Graph], Any]) -> None:
        self.graph = graph
        order, late, names = graph.topological(), set[Node](), _names(graph.placeholders.values())
        for node in order:
            producers = (value.producer for value in node.inputs if value is not None)
            if any(producer in late for producer in producers) or not names.issuperset(_names(node.outputs)):
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
