"""Import rules of the operators that contain graphs.

1. If(c)        ->  the nodes of one branch                   if c is known
2. If(c)        ->  the nodes of both branches, and Where     if they are elementwise: cheap, and none can fail
3. If(c)        ->  If                                        otherwise: only the branch that is chosen runs
4. Loop, Scan   ->  the nodes of the body for each iteration  if their number is known, and not too large
5. Loop, Scan   ->  Loop                                      otherwise
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnx

from mlhood.compiler.hir.graph import Graph, subgraph
from mlhood.compiler.hir.lengths import Dim, Length
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Node, Placeholder, Value
from mlhood.compiler.operators.arithmetic import Sub, Where
from mlhood.compiler.operators.base import Elementwise, Movement
from mlhood.compiler.operators.control_flow import ITERATION, If, Loop, merged
from mlhood.compiler.operators.movement import Concat, Gather, Slice, Transpose
from mlhood.compiler.operators.onnx_node import MAX_NODES, ConstantNeeded, OnnxNode
from mlhood.compiler.operators.shape import Reshape, Unsqueeze
from mlhood.errors import CompilerError

# Imports the nodes of a graph in an attribute for these inputs of it, and returns its outputs.
ImportGraph = Callable[[onnx.GraphProto, Sequence[Value]], list[Value]]

# The same for the number of an iteration and the variables; returns whether to go on, these, and what is collected.
Body = Callable[[Value, Sequence[Value]], list[Value]]

# Of the constants in all iterations of a loop that is unrolled.
_MAX_ELEMENTS = 2**24


def import_if(source: OnnxNode, import_graph: ImportGraph) -> Sequence[Value]:
    """Rules 1 to 3."""
    branches: list[Any] = [source.attribute(name) for name in ("then_branch", "else_branch")]
    if None in branches:
        raise source.unsupported("If must have a then_branch and an else_branch")
    if source.is_constant(0):
        return import_graph(branches[0 if source.static(0).all() else 1], ())
    graph, start = source.graph, len(source.graph.nodes)
    first = import_graph(branches[0], ())
    cut = None if _is_cheap(graph, start) else _cut(graph, start, "then", [], first)
    middle = len(graph.nodes)
    second = import_graph(branches[1], ())
    types = [[value.type for value in results] for results in (first, second)]
    if cut is None and types[0] == types[1] and _is_cheap(graph, middle):
        condition = source.add(Reshape(()), source.input(0))
        return [source.add(Where(), condition, *values) for values in zip(first, second, strict=True)]
    other, read_by_other = _cut(graph, middle, "else", [], second)
    branch, read = cut or _cut(graph, start, "then", [], first)
    try:
        return source.add_all(If(source.name, branch, other), source.input(0), *read, *read_by_other)
    except CompilerError as error:  # their types differ; either can be imported alone
        if isinstance(needed := source.not_known(0), ConstantNeeded):
            raise needed from error
        raise


def import_loop(source: OnnxNode, import_graph: ImportGraph) -> Sequence[Value]:
    """Rules 4 and 5 for Loop."""
    proto: onnx.GraphProto | None = source.attribute("body")
    initial = [value for value in map(source.as_stored, source.inputs[2:]) if value]
    if proto is None or len(proto.input) != 2 + len(initial) or len(proto.output) <= len(initial):
        raise source.unsupported("the body of a Loop must have inputs and outputs for each of its variables")
    ranks = [len(declared.type.tensor_type.shape.dim) for declared in proto.input[:2]]  # some files have one axis
    yes = source.constant(np.full((1,) * ranks[1], True))

    def body(iteration: Value, variables: Sequence[Value]) -> list[Value]:
        number = source.add(Reshape((1,)), iteration) if ranks[0] else iteration
        return list(map(source.as_stored, import_graph(proto, (number, yes, *variables))))

    count, condition = source.optional(0), source.optional(1)
    trips = None if count is None else next(iter(source.known_dims(0) or ()), None)
    trips = max(trips, 0) if isinstance(trips, int) else trips
    if condition is not None and source.is_constant(1) and not source.static(1).all():
        trips = 0
    is_known = (count is None or isinstance(trips, int)) and (condition is None or source.is_constant(1))
    if is_known and (unrolled := _unroll(source, body, initial, trips)) is not None:
        variables, collected = unrolled
        return [*variables, *(_stack(source, values, 0) for values in collected)]
    try:
        return _loop(source, body, initial, trips, count, condition)
    except CompilerError as error:
        unknown = [source.not_known(i) for i in (0, 1) if source.has(i) and not source.is_constant(i)]
        for needed in unknown:  # without these, the loop could be unrolled
            if isinstance(needed, ConstantNeeded):
                raise needed from error
        raise


def import_scan(source: OnnxNode, import_graph: ImportGraph) -> Sequence[Value]:
    """Rules 4 and 5 for Scan: a loop whose body gathers its part of each sequence."""
    if source.opset < 9:
        raise source.unsupported("Scan of opset 8, which has a batch axis, is not supported", "export with opset 9")
    proto, n = source.attribute("body"), source.attribute("num_scan_inputs", 0)
    values = [value for value in map(source.as_stored, source.inputs) if value]
    if proto is None or not 0 < n <= len(values) == len(proto.input) or len(values) - n > len(proto.output):
        raise source.unsupported("the body of a Scan must have an input for each of its variables and sequences")
    initial, sequences = values[:-n], values[-n:]
    outputs = len(proto.output) - len(initial)
    axes, backward = (source.attribute(f"scan_input_{name}") or (0,) * n for name in ("axes", "directions"))
    to_axes, to_backward = (
        source.attribute(f"scan_output_{name}") or (0,) * outputs for name in ("axes", "directions")
    )
    axes = [normalize_axis(axis, x.type.rank) for axis, x in zip(axes, sequences, strict=True)]
    lengths = [x.type.shape[axis] for axis, x in zip(axes, sequences, strict=True)]
    trips = next((length for length in lengths if isinstance(length, int)), lengths[0])
    yes, last = source.constant(np.array(True)), source.constant(np.array(-1))

    def body(iteration: Value, variables: Sequence[Value]) -> list[Value]:
        parts = []
        for x, axis, is_backward in zip(sequences, axes, backward, strict=True):
            index = source.add(Sub(), last, iteration) if is_backward else iteration
            parts.append(source.add(Gather(axis), x, index))
        return [yes, *map(source.as_stored, import_graph(proto, [*variables, *parts]))]

    if isinstance(trips, int) and (unrolled := _unroll(source, body, initial, trips)) is not None:
        variables, collected = unrolled
        ordered = [each[::-1] if back else each for each, back in zip(collected, to_backward, strict=True)]
        return [*variables, *(_stack(source, *pair) for pair in zip(ordered, to_axes, strict=True))]
    results = list(_loop(source, body, initial, trips, None, None))
    for i, (axis, is_backward) in enumerate(zip(to_axes, to_backward, strict=True), len(initial)):
        if is_backward:
            results[i] = source.add(Slice((-1,), (-(2**63),), (0,), (-1,)), results[i])
        if (axis := normalize_axis(axis, results[i].type.rank)) > 0:
            others = range(1, results[i].type.rank)
            results[i] = source.add(Transpose((*others[:axis], 0, *others[axis:])), results[i])
    return results


RULES = {"If": import_if, "Loop": import_loop, "Scan": import_scan}


def _unroll(
    source: OnnxNode, body: Body, variables: list[Value], trips: Dim | None
) -> tuple[list[Value], list[list[Value]]] | None:
    """Import the body for each iteration; return the variables, and what is collected of all iterations.

    None if the body may end the loop by data, if there are too many nodes, or if there is no iteration to collect from.
    """
    graph, start = source.graph, len(source.graph.nodes)
    collected: list[list[Value]] = []
    i, elements, going = 0, 0, True
    while going and (trips is None or i < int(trips)):
        if source.budget.nodes < MAX_NODES // 2 or elements > _MAX_ELEMENTS:
            _remove(graph, start)
            return None
        constants = len(graph.constants)
        condition, *results = body(source.constant(np.array(i, np.int64)), variables)
        elements += sum(constant.data.size for constant in islice(graph.constants.values(), constants, None))
        if (known := source.elements(condition)) is None:
            _remove(graph, start)
            return None
        collected = collected or [[] for _ in results[len(variables) :]]
        for values, value in zip(collected, results[len(variables) :], strict=True):
            values.append(value)
        variables, going, i = results[: len(variables)], bool(known.all()), i + 1
    return (variables, collected) if i else None


def _loop(
    source: OnnxNode,
    body: Body,
    initial: list[Value],
    trips: Dim | None,
    count: Value | None,
    condition: Value | None,
) -> Sequence[Value]:
    """Import the body once, as a graph; again where it changes the shape of a variable, which is dynamic then."""
    graph, start = source.graph, len(source.graph.nodes)
    types = [value.type for value in initial]
    while True:
        named = [("iteration", ITERATION), *((f"variable{i}", type) for i, type in enumerate(types))]
        parameters = [graph.placeholder(graph.unique_name(f"{source.name}.{name}"), type) for name, type in named]
        try:
            results = body(parameters[0], parameters[1:])
        except ConstantNeeded as error:
            if error.input_name not in {parameter.name for parameter in parameters}:
                raise
            what = "an input must be known at compile time, but changes with the iterations of the loop"
            raise CompilerError(what, where=error.parts["where"]) from error
        pairs = enumerate(zip(types, results[1:], strict=False))
        wider = [merged(source.name, i, type, value.type, [type]) for i, (type, value) in pairs]
        if wider == types:
            break
        _remove(graph, start, parameters)
        types = wider
    goes_on = source.elements(results[0])
    may_end = goes_on is None or not goes_on.all() or (condition is not None and not source.is_constant(1))
    inner, read = _cut(graph, start, "body", parameters, results)
    if not may_end and trips is None and count is None:
        raise source.unsupported("the loop never ends")
    if may_end or trips is None:
        return source.add_all(Loop(source.name, inner, len(initial)), count, condition, *initial, *read)
    loop = Loop(source.name, inner, len(initial), Length.of(trips))
    return source.add_all(loop, None, condition, *initial, *read)


def _stack(source: OnnxNode, values: list[Value], axis: int) -> Value:
    """Add the concatenation of values along a new axis."""
    axis = normalize_axis(axis, values[0].type.rank + 1)
    return source.add(Concat(axis), *(source.add(Unsqueeze((axis,)), value) for value in values))


def _is_cheap(graph: Graph, start: int) -> bool:
    """Return whether the nodes from this number on can be computed in vain: in little time, and without an error."""
    return all(map(_is_harmless, islice(graph.nodes.values(), start, None)))


def _is_harmless(node: Node) -> bool:
    shape, operator = node.outputs[0].type.shape, node.operator
    shapes = [value.type.shape for value in node.inputs if value is not None]
    fits = all(each == shape or all(isinstance(axis, int) for axis in each) for each in shapes)
    return fits and (isinstance(operator, Elementwise) or (isinstance(operator, Movement) and len(shapes) == 1))


def _cut(
    graph: Graph, start: int, name: str, parameters: Sequence[Placeholder], results: Sequence[Value]
) -> tuple[Graph, list[Value]]:
    """Move the nodes from number `start` on, and the parameters, to a graph that returns the results.

    Returns:
        The new graph, and the values that its placeholders after the parameters stand for.
    """
    nodes, live = list(islice(graph.nodes.values(), start, None)), set[Value | None](results)
    for node in reversed(nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.inputs)
    nodes = [node for node in nodes if not live.isdisjoint(node.outputs)]
    inner = subgraph(graph, nodes, results, parameters, copy_constants=False)
    inner.name = name
    read = [graph.value(name) for name in list(inner.placeholders)[len(parameters) :]]
    _remove(graph, start, parameters)
    return inner, read


def _remove(graph: Graph, start: int, parameters: Sequence[Placeholder] = ()) -> None:
    """Remove the nodes from number `start` on, and placeholders."""
    for node in reversed(list(islice(graph.nodes.values(), start, None))):
        graph.remove(node)
    for parameter in parameters:
        graph.remove_placeholder(parameter)
