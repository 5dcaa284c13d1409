"""The oracle: runs a verified graph with NumPy, one node after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple, footprint, located
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.hir.verify import verify
from mlhood.errors import CompilerError

Observer = Callable[[Value, np.ndarray], None]

# From the arrays that a node reads (None for an input left out) to those it makes.
Implementation = Callable[..., tuple[np.ndarray, ...]]

# Bytes of one array. A graph of a few bytes must not take all the memory of the machine.
LARGEST_ARRAY = 2**32


@dataclass
class _Step:
    """One node, made ready to run.

    Args:
        node: The node.
        compute: What computes it.
        last: The values that nobody reads afterwards.
        shapes: Shapes of its inputs for which it is known to fit into memory.
    """

    node: Node
    compute: Implementation
    last: tuple[Value, ...]
    shapes: list[tuple[int, ...] | None] | None = None


class Interpreter:
    """A graph, made ready to run.

    Args:
        graph: A graph; it is verified first, and must not be changed afterwards.
        limit: Bytes that one array may take, of a result or of what an operator needs on the way to it.

    Raises:
        CompilerError: The graph breaks a rule.
    """

    def __init__(self, graph: Graph, limit: int = LARGEST_ARRAY) -> None:
        verify(graph)
        self.limit = limit
        self.graph = graph
        order = graph.topological()
        last_reader = {value: node for node in order for value in node.inputs if value is not None}
        for output in graph.outputs.values():
            last_reader.pop(output, None)
        last: dict[Node, list[Value]] = {node: [] for node in order}
        for value, node in last_reader.items():
            last[node].append(value)
        self._steps = [_Step(node, self.implementation(node), tuple(last[node])) for node in order]

    def implementation(self, node: Node) -> Implementation:
        """Return what computes a node: here its operator's reference semantics; a back end may know better.

        What it returns is called with the arrays that the node reads, and returns those that it makes.
        """
        types = tuple(None if value is None else value.type for value in node.inputs)
        return located_at(node, lambda *read: as_tuple(node.operator.evaluate_typed(types, *read)))

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once.

        Args:
            inputs: An array for each placeholder, by name, of the element type and shape that it declares.
            observe: Called with each value a node makes, and its array: for profiles and comparisons by layer.

        Returns:
            Each output of the graph under its name.

        Raises:
            CompilerError: An input is missing, unknown or of another type, an operator fails on these numbers, or
                an array would be larger than the limit.
        """
        arrays: dict[Value, np.ndarray] = {**self._bound(inputs)}
        arrays |= {constant: constant.data for constant in self.graph.constants.values()}
        with np.errstate(all="ignore"):
            for step in self._steps:
                for value, array in zip(step.node.outputs, self._results(step, arrays), strict=True):
                    arrays[value] = array
                    if observe is not None:
                        observe(value, array)
                for value in step.last:
                    arrays.pop(value, None)
        return {name: arrays[value] for name, value in self.graph.outputs.items()}

    def _results(self, step: _Step, arrays: Mapping[Value, np.ndarray]) -> tuple[np.ndarray, ...]:
        read = [None if value is None else arrays[value] for value in step.node.inputs]
        shapes = [None if array is None else array.shape for array in read]
        if step.shapes != shapes:  # memory depends on nothing else
            _check_memory(step.node, read, self.limit)
            step.shapes = shapes
        results = step.compute(*read)
        for value, array in zip(step.node.outputs, results, strict=True):
            _check_result(step.node, value.type, array)
        return results

    def _bound(self, inputs: Mapping[str, Any]) -> dict[Value, np.ndarray]:
        declared = self.graph.placeholders
        check_batch(inputs)
        if inputs.keys() != declared.keys():
            raise CompilerError(
                "these are not the graph's inputs",
                where=f"graph {self.graph.name!r}",
                expected=", ".join(declared) or "none",
                got=", ".join(inputs) or "none",
            )
        lengths: dict[str, int] = {}
        bound: dict[Value, np.ndarray] = {}
        for name, placeholder in declared.items():
            array = _array(name, inputs[name])
            _check_input(name, array, placeholder.type, lengths)
            bound[placeholder] = array
        return bound


def run(graph: Graph, **inputs: Any) -> dict[str, np.ndarray]:
    """Run a graph once; see `Interpreter.run`."""
    return Interpreter(graph).run(inputs)


def check_batch(inputs: object) -> None:
    """Check that inputs are given by name.

    Raises:
        CompilerError: They are not.
    """
    if not isinstance(inputs, Mapping):
        raise CompilerError(
            "inputs are given by name", expected="a dict with an array for each input", got=type(inputs).__name__
        )


def _array(name: str, given: Any) -> np.ndarray:
    try:
        return np.asarray(given)
    except (ValueError, TypeError) as error:  # lists of different lengths
        raise CompilerError("an input is no array", where=f"input {name!r}", got=error) from error


def _check_input(name: str, array: np.ndarray, type: TensorType, lengths: dict[str, int]) -> None:
    where = f"input {name!r}"
    if array.dtype != type.dtype:
        raise CompilerError(
            "an input has the wrong dtype",
            where=where,
            expected=type.element,
            got=array.dtype.name,
            todo=f"convert it with .astype('{type.element}')",
        )
    if array.ndim != type.rank:
        raise CompilerError("an input has the wrong shape", where=where, expected=type.shape, got=array.shape)
    for axis, size in zip(type.shape, array.shape, strict=True):
        wanted = lengths.setdefault(axis, size) if isinstance(axis, str) else axis
        if size != wanted:
            expected = f"{type.shape}, where {axis} is {wanted}" if isinstance(axis, str) else type.shape
            raise CompilerError("an input has the wrong shape", where=where, expected=expected, got=array.shape)


def located_at(node: Node, compute: Implementation) -> Implementation:
    """Return an implementation whose errors name the node."""

    def named(*read: np.ndarray | None) -> tuple[np.ndarray, ...]:
        try:
            return compute(*read)
        except CompilerError as error:
            raise located(error, node.where) from error
        except (ValueError, TypeError, LookupError, MemoryError, ArithmeticError) as error:
            shapes = ", ".join("none" if array is None else str(list(array.shape)) for array in read)
            what = "the operator fails on these inputs"
            raise CompilerError(what, where=node.where, got=f"{shapes}: {error}") from error

    return named


def _check_memory(node: Node, read: list[np.ndarray | None], limit: int) -> None:
    """Work out before a node runs how much memory it takes: by its type rule, from its inputs' actual shapes."""
    types = [
        None if value is None or array is None else TensorType(value.type.element, array.shape, value.type.quantization)
        for value, array in zip(node.inputs, read, strict=True)
    ]
    try:
        needed = footprint(node.operator, types, as_tuple(node.operator.infer(*types)))
    except CompilerError as error:
        raise located(error, node.where) from error
    if needed > limit:
        raise CompilerError(
            "the node needs more memory than the interpreter may take",
            where=node.where,
            expected=f"{limit:,} bytes at most",
            got=f"{needed:,} bytes",
            todo="run a smaller batch or a smaller model, or give more: Interpreter(graph, limit=...)",
        )


def _check_result(node: Node, type: TensorType, array: np.ndarray) -> None:
    """Hold the operator to its own type rule: what it computes has the type that it promised."""
    axes = zip(type.shape, array.shape, strict=False)
    if array.dtype == type.dtype and array.ndim == type.rank and all(isinstance(a, str) or a == n for a, n in axes):
        return
    raise CompilerError(
        "the operator made something other than its type says",
        where=node.where,
        expected=f"{type.element}{list(type.shape)}",
        got=f"{array.dtype.name}{list(array.shape)}",
    )
