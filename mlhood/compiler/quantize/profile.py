"""Profiling: the range and histogram of every float value of a graph on real data.

Profile the graph that will be quantised: the optimised one, in which an activation is part of its convolution, so
that only values that are materialised are profiled: by a float graph, or between a layer and its activation's table.

A value that holds infinities, such as a mask of attention scores, has no range; it is remembered and stays in float.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import check_inputs
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.activation import AddActivation, operator_of
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.rescale import INTEGER_ACTIVATIONS
from mlhood.compiler.quantize.distribution import Distribution, describe_invalid
from mlhood.errors import CompilerError


def pre_activation_name(name: str) -> str:
    """Return the name of the input of the fused activation whose result has this name."""
    return f"{name}.before"


def split_activations(graph: Graph) -> Graph:
    """Return a copy of a graph in which activations that integer layers cannot apply are separate nodes.

    All values keep their names; the value between a layer and its activation is named by `pre_activation_name`, unless
    the graph has another value of that name.
    """
    other = graph.copy()
    for node in other.topological():
        activation = getattr(node.operator, "activation", ())
        if activation and activation[0] not in INTEGER_ACTIVATIONS:
            _split(other, node, operator_of(activation))
    return other


def _split(graph: Graph, node: Node, activation: Operator) -> None:
    operator: Any = node.operator
    plain = Add() if isinstance(operator, AddActivation) else replace(operator, activation=())
    name = pre_activation_name(node.outputs[0].name)
    before = graph.add(plain, *node.inputs, outputs=[name]).outputs[0]
    graph.replace(node, activation, before)


@dataclass(frozen=True)
class Profile:
    """Distributions of placeholders and of nodes' results, by the value's name: `profile["relu"]`.

    Args:
        graph: Fingerprint of the profiled graph: a hash of its text form, which contains a hash of each constant.
        distributions: The values' distributions.
        unbounded: Names of the values in which an element was infinite or NaN; they have no distribution.
    """

    graph: str
    distributions: dict[str, Distribution] = field(default_factory=dict)
    unbounded: frozenset[str] = frozenset()

    def range(self, name: str) -> tuple[float, float]:
        """Return the minimum and the maximum of a value.

        Raises:
            CompilerError: The value was not profiled.
        """
        return self[name].low, self[name].high

    def __getitem__(self, name: str) -> Distribution:
        if name not in self.distributions:
            raise CompilerError("the value was not profiled", where=f"value {name!r}")
        return self.distributions[name]

    def check(self, graph: Graph) -> None:
        """Check that this is a profile of the graph.

        Raises:
            CompilerError: It is a profile of another graph.
        """
        if self.graph != fingerprint(graph):
            raise CompilerError(
                "the profile belongs to another graph",
                where=f"graph {graph.name!r}",
                expected=f"fingerprint {fingerprint(graph)}",
                got=self.graph,
                todo="profile the same graph: the optimised one, with these weights",
            )


def fingerprint(graph: Graph) -> str:
    """Return a hash of a graph's text form, which covers its nodes, names, types and weights."""
    return hashlib.sha256(to_text(graph).encode()).hexdigest()[:16]


def profile(graph: Graph, batches: Iterable[Mapping[str, np.ndarray]]) -> Profile:
    """Run a graph on calibration data and record the distribution of each float value.

    Args:
        graph: The float graph to be quantised.
        batches: The inputs of one run each: an array for each placeholder, by name.

    Raises:
        CompilerError: There are no data, an input is invalid, or an input or output of the graph is NaN (the error
            names the first value with NaN).
    """
    if not isinstance(batches, Iterable):
        raise CompilerError(
            "invalid calibration data",
            expected="an iterable of batches, each a dict with an array for each input",
            got=type(batches).__name__,
            todo="pass a list: profile(graph, [{'image': images}])",
        )
    interpreter = Interpreter(split_activations(graph))
    observer = _Observer(frozenset(value.name for value in graph.outputs.values()))
    for inputs in batches:
        check_inputs(inputs)
        for name, value in graph.placeholders.items():
            array = inputs.get(name)
            if isinstance(array, (np.ndarray, np.generic)) and array.dtype == value.type.dtype:
                observer.observe(value, np.asarray(array))  # `run` rejects any other input
        interpreter.run(inputs, observer.observe)
    if not observer.distributions:
        todo = "pass at least one batch, and a graph with float values"
        raise CompilerError("nothing to profile", where=f"graph {graph.name!r}", todo=todo)
    bounded = {name: found for name, found in observer.distributions.items() if name not in observer.unbounded}
    return Profile(fingerprint(graph), bounded, frozenset(observer.unbounded))


class _Observer:
    """Collects the distributions of the values that are observed.

    Args:
        outputs: Names of the graph's outputs, which must not be NaN.
    """

    def __init__(self, outputs: frozenset[str]) -> None:
        self.outputs = outputs
        self.distributions: dict[str, Distribution] = {}
        self.unbounded: set[str] = set()
        self._first_nan: CompilerError | None = None

    def observe(self, value: Value, array: np.ndarray) -> None:
        """Record an array of a value; raise CompilerError if it is NaN and an input or an output of the graph."""
        if not value.type.is_float or not array.size:
            return
        if not np.isfinite(array).all():
            self._record_infinite(value, array)
            return
        distribution, previous = Distribution.of(array), self.distributions.get(value.name)
        self.distributions[value.name] = distribution if previous is None else previous.merge(distribution)

    def _record_infinite(self, value: Value, array: np.ndarray) -> None:
        """Note that a value has no range: masks hold infinities, and rows that they hide may be NaN."""
        self.unbounded.add(value.name)
        if np.isnan(array).any():
            self._first_nan = self._first_nan or _nan_error(value, array)
            if value.producer is None or value.name in self.outputs:
                raise self._first_nan


def _nan_error(value: Value, array: np.ndarray) -> CompilerError:
    todo = "check for overflow in the layer that computes it, and for NaN in the data"
    what, where = "only finite numbers can be profiled", f"value {value.name!r}"
    return CompilerError(what, where=where, got=describe_invalid(array), todo=todo)
