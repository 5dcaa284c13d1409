"""The oracle: execute a verified graph with NumPy, node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import bind_inputs
from mlhood.compiler.hir.operator import as_tuple, located
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value, needed_memory
from mlhood.compiler.hir.verify import verify
from mlhood.errors import CompilerError

Observer = Callable[[Value, np.ndarray], None]

# Maps the arrays of a node's inputs (None for an omitted one) to those of its outputs.
Implementation = Callable[..., tuple[np.ndarray, ...]]

# Limits on a single array, and on all that are live at once: a tiny model file must not exhaust the machine's memory.
MAX_ARRAY_BYTES = 2**32
MAX_LIVE_BYTES = 2**33


@dataclass
class _Step:
    """One node, prepared for execution.

    Args:
        node: The node.
        compute: Its implementation.
        last_uses: The values that are dead after this node.
        shapes: Shapes of its inputs for which `bytes` is.
        bytes: Size of its results or temporaries, whichever is larger.
    """

    node: Node
    compute: Implementation
    last_uses: tuple[Value, ...]
    shapes: list[tuple[int, ...] | None] | None = None
    bytes: int = 0


class Interpreter:
    """A graph, prepared for execution.

    Args:
        graph: A graph; it is verified, and must not be modified afterwards.
        limit: Maximum size in bytes of an array, be it a result or a temporary of an operator.
        total: Maximum size in bytes of all results that are live at once, and the temporaries of the operator running.

    Raises:
        CompilerError: The graph is invalid.
    """

    def __init__(self, graph: Graph, limit: int = MAX_ARRAY_BYTES, total: int = MAX_LIVE_BYTES) -> None:
        verify(graph)
        self.limit, self.total = limit, total
        self.graph = graph
        order = graph.topological()
        last_user = {value: node for node in order for value in node.outputs}  # if nothing reads it
        last_user |= {value: node for node in order for value in node.inputs if value is not None}
        for output in graph.outputs.values():
            last_user.pop(output, None)
        last_uses: dict[Node, list[Value]] = {node: [] for node in order}
        for value, node in last_user.items():
            last_uses[node].append(value)
        self._steps = [_Step(node, self.implementation(node), tuple(last_uses[node])) for node in order]

    def implementation(self, node: Node) -> Implementation:
        """Return the function that computes a node: by default its operator's reference semantics."""
        types = tuple(None if value is None else value.type for value in node.inputs)
        return with_location(node, lambda *arrays: as_tuple(node.operator.evaluate_typed(types, *arrays)))

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once.

        Args:
            inputs: An array for each placeholder, by name, of the declared element type and shape.
            observe: Called with each value that a node computes, and its array: for profiles and comparisons by layer.

        Returns:
            The graph's outputs by name.

        Raises:
            CompilerError: An input is missing, unknown or of another type, an operator fails on these inputs, or
                an array would exceed the limit.
        """
        placeholders = self.graph.placeholders
        types = {name: placeholder.type for name, placeholder in placeholders.items()}
        bound = bind_inputs(types, inputs, f"graph {self.graph.name!r}")
        arrays: dict[Value, np.ndarray] = {placeholders[name]: array for name, array in bound.items()}
        arrays |= {constant: constant.data for constant in self.graph.constants.values()}
        live = 0  # bytes of what nodes have computed
        with np.errstate(all="ignore"):
            for step in self._steps:
                for value, array in zip(step.node.outputs, self._results(step, arrays, live), strict=True):
                    arrays[value] = array
                    live += array.nbytes
                    if observe is not None:
                        observe(value, array)
                for value in step.last_uses:
                    array = arrays.pop(value, None)
                    live -= array.nbytes if array is not None and value.producer is not None else 0
        return {name: arrays[value] for name, value in self.graph.outputs.items()}

    def _results(self, step: _Step, arrays: Mapping[Value, np.ndarray], live: int) -> tuple[np.ndarray, ...]:
        inputs = [None if value is None else arrays[value] for value in step.node.inputs]
        shapes = [None if array is None else array.shape for array in inputs]
        if step.shapes != shapes:  # the memory depends on the shapes only
            step.bytes = needed_memory(step.node, shapes)
            step.shapes = shapes
        if step.bytes > self.limit:
            todo = "run a smaller batch or a smaller model, or raise the limit: Interpreter(graph, limit=...)"
            raise _too_large("the node needs more memory", step.node, self.limit, step.bytes, todo)
        if live + step.bytes > self.total:
            todo = "run a smaller batch or a smaller model, or raise the limit: Interpreter(graph, total=...)"
            raise _too_large(
                "the values that are live here need more memory", step.node, self.total, live + step.bytes, todo
            )
        results = step.compute(*inputs)
        for value, array in zip(step.node.outputs, results, strict=True):
            _check_result(step.node, value.type, array)
        return results


def run(graph: Graph, /, **inputs: Any) -> dict[str, np.ndarray]:
    """Run a graph once; see `Interpreter.run`."""
    return Interpreter(graph).run(inputs)


def with_location(node: Node, compute: Implementation) -> Implementation:
    """Return an implementation whose errors name the node."""

    def wrapper(*inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
        with located(node.where, inputs):
            return compute(*inputs)

    return wrapper


def _too_large(what: str, node: Node, limit: int, needed: int, todo: str) -> CompilerError:
    return CompilerError(
        f"{what} than the interpreter's limit",
        where=node.where,
        expected=f"{limit:,} bytes at most",
        got=f"{needed:,} bytes",
        todo=todo,
    )


def _check_result(node: Node, type: TensorType, array: np.ndarray) -> None:
    """Check that a result has the type that the operator's type rule inferred."""
    axes = zip(type.shape, array.shape, strict=False)
    if array.dtype == type.dtype and array.ndim == type.rank and all(isinstance(a, str) or a == n for a, n in axes):
        return
    raise CompilerError(
        "the operator's result does not match its type",
        where=node.where,
        expected=f"{type.element}{list(type.shape)}",
        got=f"{array.dtype.name}{list(array.shape)}",
    )
