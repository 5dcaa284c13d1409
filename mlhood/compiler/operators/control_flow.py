"""Operators that contain graphs: If runs one of two, Loop runs one again and again.

Such a graph reads its placeholders only. What it uses of the graph around it, constants too, are inputs of the node, so
that passes and back ends see a node like any other. It is not modified, so its nodes remain in topological order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.lengths import Dim, names_in
from mlhood.compiler.hir.operator import (
    Operator,
    as_tuple,
    infer_output_types,
    require,
    require_unquantized,
    unsupported,
)
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value, needed_memory
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.errors import CompilerError

MAX_BYTES = 2**32  # of an array in a branch or body, and of what a Loop collects
ITERATION = TensorType("int64", ())


@dataclass(frozen=True)
class ControlFlow(Operator):
    """Base: an operator with graphs, and the lengths of its results.

    Attributes:
        length: The axes whose lengths depend on data are called `length`.output.axis.
    """

    length: str

    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS
    family = "other"
    from_onnx = unsupported("compiler.onnx.control_flow imports it, which also imports the graphs in it")

    def workspace(self, *types: TensorType | None) -> int:
        """The graphs check the memory of each node themselves."""
        return 0


@dataclass(frozen=True)
class If(ControlFlow):
    """The outputs of one of two graphs: `then_branch` if the condition holds, else `else_branch`.

    Inputs: the condition, bool, one element; then one for each placeholder of `then_branch`, and of `else_branch`.
    """

    then_branch: Graph
    else_branch: Graph

    arity = (1, None)

    def infer(self, condition: TensorType, *captured: TensorType) -> tuple[TensorType, ...]:
        _require_scalar(condition, "bool")
        expected = sum(len(branch.placeholders) for branch in (self.then_branch, self.else_branch))
        require(len(captured) == expected, "wrong number of inputs of the branches", expected=expected)
        types, error = [], None
        for branch, inputs in self.split(captured):
            try:
                types.append(run(branch, inputs, _infer))
            except CompilerError as reason:  # for these lengths, only the other one can run
                error = reason
        if error is not None and not types:
            raise error
        pairs = list(zip(types[0], types[-1], strict=True))
        return tuple(merged(self.length, i, *pair, captured) for i, pair in enumerate(pairs))

    def evaluate(self, condition: np.ndarray, *captured: np.ndarray) -> tuple[np.ndarray, ...]:
        return run(*self.split(captured)[0 if condition.item() else 1], _evaluate)

    def split(self, captured: Sequence[Any]) -> tuple[tuple[Graph, Sequence[Any]], tuple[Graph, Sequence[Any]]]:
        """Return the branches, each with its inputs."""
        count = len(self.then_branch.placeholders)
        return (self.then_branch, captured[:count]), (self.else_branch, captured[count:])

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        names = [name, *(writer.name(value) for value in writer.node.outputs[1:])]
        first, second = (writer.inner_graph(*pair) for pair in self.split(inputs[1:]))
        return writer.emit_all("If", inputs[0], names=names, then_branch=first, else_branch=second)[0]


@dataclass(frozen=True)
class Loop(ControlFlow):
    """The body, run again and again; ONNX's Loop and Scan.

    Inputs: the number of iterations, int64, and whether to begin, bool, both one element or left out; the first values
    of the variables; and what the body reads.

    Outputs: the last values of the variables; and what is collected from all iterations, along a new axis 0.

    Attributes:
        body: Its placeholders are the number of the iteration, int64, the variables, and what it reads. Its outputs are
            whether to go on, bool, the variables, and what is collected.
        variables: How many variables there are.
        trips: The number of iterations as a length, instead of the input; None if it is not known, or if the body may
            end the loop.
    """

    body: Graph
    variables: int
    trips: Dim | None = None

    arity = (0, None)

    def infer(
        self, count: TensorType | None = None, condition: TensorType | None = None, *rest: TensorType
    ) -> tuple[TensorType, ...]:
        for type, element in ((count, "int64"), (condition, "bool")):
            if type is not None:
                _require_scalar(type, element)
        inputs = (count, condition, *rest)
        variables, read = self.split(rest)
        while True:  # until the lengths that the body changes have names
            goes_on, *results = run(self.body, (ITERATION, *variables, *read), _infer)
            pairs = enumerate(zip(variables, results, strict=False))
            widened = tuple(merged(self.length, i, a, b, (*inputs, a)) for i, (a, b) in pairs)
            if widened == variables:
                break
            variables = widened
        _require_scalar(goes_on, "bool")
        trips = f"{self.length}.trips" if self.trips is None else self.trips
        collected = [merged(self.length, i, a, a, inputs) for i, a in enumerate(results)][self.variables :]
        return (*variables, *(type.with_shape((trips, *type.shape)) for type in collected))

    def evaluate(
        self, count: np.ndarray | None = None, condition: np.ndarray | None = None, *rest: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        inputs = (count, condition, *rest)
        variables, read = self.split(rest)
        limit = sys.maxsize if count is None else count.item()
        limit = limit if self.trips is None else int(self.trips)
        collected: list[list[np.ndarray]] = [[] for _ in list(self.body.outputs)[1 + self.variables :]]
        goes_on, i, size = condition is None or condition.item(), 0, 0
        while goes_on and i < limit:
            flag, *results = run(self.body, (np.array(i), *variables, *read), _evaluate)
            variables = results[: self.variables]
            for arrays, array in zip(collected, results[self.variables :], strict=True):
                arrays.append(array)
                size += array.nbytes
            require(size <= MAX_BYTES, "the loop collects too much", expected=f"{MAX_BYTES:,} bytes at most")
            goes_on, i = flag.item(), i + 1
        if i:
            return (*variables, *map(np.stack, collected))
        given: list[Any] = [each if each is None else TensorType(each.dtype.name, each.shape) for each in inputs]
        types = self.infer(*given)[self.variables :]
        shapes = [(0, *(0 if isinstance(axis, str) else axis for axis in type.shape[1:])) for type in types]
        return (*variables, *(np.zeros(shape, type.dtype) for shape, type in zip(shapes, types, strict=True)))

    def split(self, rest: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the variables, and what the body reads."""
        return rest[: self.variables], rest[self.variables :]

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        names = [name, *(writer.name(value) for value in writer.node.outputs[1:])]
        count, condition, *rest = (*inputs, "", "")[: max(len(inputs), 2)]
        variables, read = self.split(rest)
        if self.trips is not None:
            count = writer.emit("Squeeze", writer.integers((self.trips,)))
        body = writer.inner_graph(self.body, read)
        body.input.insert(1, writer.info(writer.unique_name(f"{self.body.name}.condition"), TensorType("bool", ())))
        return writer.emit_all("Loop", count, condition, *variables, names=names, body=body)[0]


def run(graph: Graph, inputs: Sequence[Any], apply: Callable[[Node, list[Any]], Sequence[Any]]) -> tuple[Any, ...]:
    """Return the outputs of a graph for these inputs: arrays or types, as `apply` returns them for the nodes."""
    expected = len(graph.placeholders)
    require(len(inputs) == expected, "wrong number of inputs of a graph", expected=expected, got=len(inputs))
    values: dict[Value | None, Any] = {None: None, **dict(zip(graph.placeholders.values(), inputs, strict=True))}
    for node in graph.nodes.values():
        values.update(zip(node.outputs, apply(node, [values[value] for value in node.inputs]), strict=True))
    return tuple(values[value] for value in graph.outputs.values())


def _infer(node: Node, types: list[Any]) -> Sequence[TensorType]:
    return infer_output_types(node.operator, types, node.where)


def _evaluate(node: Node, arrays: list[Any]) -> Sequence[np.ndarray]:
    if (needed := _memory(node, *(None if array is None else array.shape for array in arrays))) > MAX_BYTES:
        what, limit = "the node needs too much memory", f"{MAX_BYTES:,} bytes at most"
        raise CompilerError(what, where=node.where, expected=limit, got=f"{needed:,} bytes")
    types = tuple(None if value is None else value.type for value in node.inputs)
    return [np.asarray(result) for result in as_tuple(node.operator.evaluate_typed(types, *arrays))]


@lru_cache(2**12)
def _memory(node: Node, *shapes: tuple[int, ...] | None) -> int:
    return needed_memory(node, shapes)


def merged(length: str, output: int, a: TensorType, b: TensorType, inputs: Sequence[TensorType | None]) -> TensorType:
    """Return the type of an output that has type a or b: axes that may differ get names, see `ControlFlow`.

    So do axes with names that `inputs` do not have: they are known in a branch or body only.

    Raises:
        CompilerError: The element types or the numbers of axes differ.
    """
    require_unquantized(a, b)
    if (a.element, a.rank) != (b.element, b.rank):
        todo = "give the lengths of dynamic axes, if the condition depends on them: compile(model, dims={...})"
        expected, got = f"{a.element}{list(a.shape)}", f"{b.element}{list(b.shape)}"
        raise CompilerError(f"output {output}: the types differ", expected=expected, got=got, todo=todo)
    names = {name for type in inputs if type is not None for axis in type.shape for name in names_in(axis)}
    axes = enumerate(zip(a.shape, b.shape, strict=True))
    return a.with_shape(
        x if x == y and names.issuperset(names_in(x)) else f"{length}.{output}.{i}" for i, (x, y) in axes
    )


def _require_scalar(type: TensorType, element: str) -> None:
    valid = type.element == element and (type.size == 1 or isinstance(type.size, str))
    what, got = "wrong condition or number of iterations", f"{type.element}{list(type.shape)}"
    require(valid, what, expected=f"one {element}", got=got)


OPERATORS = (If, Loop)
