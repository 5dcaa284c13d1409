"""The table of targets on which a graph can run.

What follows from lengths that data decide is run by the interpreter behind any back end (`Split`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter, Observer
from mlhood.compiler.hir.graph import Graph, subgraph
from mlhood.compiler.hir.lengths import names_in
from mlhood.compiler.hir.values import Node, Value
from mlhood.errors import CompilerError, nearest

Conv2d = Callable[..., np.ndarray]


class Runner(Protocol):
    """A graph, prepared for execution; see `Interpreter.run`."""

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        ...


def _kernels(graph: Graph, conv2d: str | Conv2d) -> Runner:
    from mlhood.compiler.backends.kernels import Kernels  # loads LLVM, which the interpreter does not need

    return Kernels(graph, conv2d)


def _cpu(graph: Graph) -> Runner:
    from mlhood.compiler.backends.cpu.runner import Cpu

    return Split(graph, Cpu) if has_data_dependent_lengths(graph) else Cpu(graph)


def _lower_for_cpu(graph: Graph) -> Graph:
    from mlhood.compiler.backends.cpu.lowering import lower_for_cpu

    return lower_for_cpu(graph)


def _xla(graph: Graph) -> Runner:
    from mlhood.compiler.backends.xla import Xla  # loads JAX

    return Xla(graph)


def _nmp(graph: Graph) -> Runner:
    from mlhood.compiler.backends.nmp.runner import Heterogeneous

    return Heterogeneous(graph)


DEFAULT = "interpreter"
TARGETS: dict[str, Callable[[Graph], Runner]] = {
    "interpreter": Interpreter,
    "naive": lambda graph: _kernels(graph, "naive"),
    "im2col_gemm": lambda graph: _kernels(graph, "im2col_gemm"),
    "im2col_blas": lambda graph: _kernels(graph, "im2col_blas"),
    "direct": lambda graph: _kernels(graph, "direct"),
    "cpu": _cpu,
    "xla": _xla,
    "nmp": _nmp,
}

# The stage "lowered" of the targets that have one: the graph with the layouts and operators of their kernels.
LOWERINGS: dict[str, Callable[[Graph], Graph]] = {"cpu": _lower_for_cpu}
Target = str | Conv2d


def prepare(graph: Graph, target: Target) -> Runner:
    """Prepare a graph for execution.

    Args:
        graph: A valid graph.
        target: A key of `TARGETS`, or a function for convolutions; see `mlhood.compiler.backends.kernels.Kernels`.

    Raises:
        CompilerError: The target cannot run the graph.
    """
    return _kernels(graph, target) if callable(target) else TARGETS[target](graph)


def check_target(target: Target) -> None:
    """Raise CompilerError if a target is unknown."""
    if not callable(target) and target not in TARGETS:
        todo = "choose one of these; C or a page is written by mlhood compile --target c or --target wasm, --out FOLDER"
        raise CompilerError(
            "unknown target",
            expected=", ".join(TARGETS),
            got=repr(target),
            todo=nearest(target, [*TARGETS, "c", "wasm"]) or todo,
        )


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
