"""Import rules of the operators that contain graphs, which become the nodes of these graphs.

1. If(c)        ->  the nodes of one branch                   if c is known
2. If(c)        ->  the nodes of both branches, and Where     if the results have the same types
3. Loop, Scan   ->  the nodes of the body for each iteration  if their number is known, and not too large
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnx

from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Sub, Where
from mlhood.compiler.operators.movement import Concat, Gather
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.shape import Reshape, Unsqueeze

# Imports the nodes of a graph in an attribute for these inputs of it, and returns its outputs.
ImportGraph = Callable[[onnx.GraphProto, Sequence[Value]], list[Value]]

# The same for the number of an iteration and the variables; returns whether to go on, these, and what is collected.
Body = Callable[[Value, Sequence[Value]], list[Value]]


def import_if(source: OnnxNode, import_graph: ImportGraph) -> Sequence[Value]:
    """Rules 1 and 2."""
    branches: list[Any] = [source.attribute(name) for name in ("then_branch", "else_branch")]
    if None in branches:
        raise source.unsupported("If must have a then_branch and an else_branch")
    if source.is_constant(0):
        return import_graph(branches[0 if source.static(0).all() else 1], ())
    first, second = (import_graph(branch, ()) for branch in branches)
    if [value.type for value in first] != [value.type for value in second]:
        raise source.not_known(0)
    condition = source.add(Reshape(()), source.input(0))
    return [source.add(Where(), condition, *values) for values in zip(first, second, strict=True)]


def import_loop(source: OnnxNode, import_graph: ImportGraph) -> Sequence[Value]:
    """Rule 3 for Loop."""
    proto: onnx.GraphProto | None = source.attribute("body")
    initial = [value for value in map(source.as_stored, source.inputs[2:]) if value]
    if proto is None or len(proto.input) != 2 + len(initial) or len(proto.output) <= len(initial):
        raise source.unsupported("the body of a Loop must have inputs and outputs for each of its variables")
    ranks = [len(declared.type.tensor_type.shape.dim) for declared in proto.input[:2]]  # some files have one axis
    yes = source.constant(np.full((1,) * ranks[1], True))

    def body(iteration: Value, variables: Sequence[Value]) -> list[Value]:
        number = source.add(Reshape((1,)), iteration) if ranks[0] else iteration
        return list(map(source.as_stored, import_graph(proto, (number, yes, *variables))))

    trips = int(source.static(0).item()) if source.has(0) else None
    if source.has(1) and not source.static(1).all():
        trips = 0
    variables, collected = _unroll(source, body, initial, trips)
    return [*variables, *(_stack(source, values, 0) for values in collected)]


def import_scan(source: OnnxNode, import_graph: ImportGraph) -> Sequence[Value]:
    """Rule 3 for Scan: a loop whose body gathers its part of each sequence."""
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
    trips = sequences[0].type.shape[axes[0]]
    if isinstance(trips, str):
        raise source.unsupported(f"the length {trips!r} of a sequence must be known", "import_model(..., dims={...})")
    yes, last = source.constant(np.array(True)), source.constant(np.array(-1))

    def body(iteration: Value, variables: Sequence[Value]) -> list[Value]:
        parts = []
        for x, axis, is_backward in zip(sequences, axes, backward, strict=True):
            index = source.add(Sub(), last, iteration) if is_backward else iteration
            parts.append(source.add(Gather(axis), x, index))
        return [yes, *map(source.as_stored, import_graph(proto, [*variables, *parts]))]

    variables, collected = _unroll(source, body, initial, trips)
    ordered = [each[::-1] if back else each for each, back in zip(collected, to_backward, strict=True)]
    return [*variables, *(_stack(source, *pair) for pair in zip(ordered, to_axes, strict=True))]


RULES = {"If": import_if, "Loop": import_loop, "Scan": import_scan}


def _unroll(
    source: OnnxNode, body: Body, variables: list[Value], trips: int | None
) -> tuple[list[Value], list[list[Value]]]:
    """Import the body for each iteration; return the variables, and what is collected of all iterations."""
    collected: list[list[Value]] = []
    i, going = 0, True
    while going and (trips is None or i < trips):
        constants = len(source.graph.constants)
        condition, *results = body(source.constant(np.array(i, np.int64)), variables)
        source.spend(sum(each.data.size for each in islice(source.graph.constants.values(), constants, None)))
        if (known := source.elements(condition)) is None:
            raise source.unsupported("data decide when the loop ends", "export it with a fixed number of iterations")
        collected = collected or [[] for _ in results[len(variables) :]]
        for values, value in zip(collected, results[len(variables) :], strict=True):
            values.append(value)
        variables, going, i = results[: len(variables)], bool(known.all()), i + 1
    if not i and any(source.outputs[len(variables) :]):
        raise source.unsupported("a loop without iterations collects nothing")
    return variables, collected


def _stack(source: OnnxNode, values: list[Value], axis: int) -> Value:
    """Add the concatenation of values along a new axis."""
    axis = normalize_axis(axis, values[0].type.rank + 1)
    return source.add(Concat(axis), *(source.add(Unsqueeze((axis,)), value) for value in values))
