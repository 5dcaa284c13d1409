"""Profiling: the range and histogram of every float value of a graph on real data.

Profile the graph that will be quantised: the optimised one, in which an activation is part of its convolution, so
that only values that are materialised are profiled: by a float graph, or between a layer and its activation's table.

A value that holds infinities, such as a mask of attention scores, has no range; it is remembered and stays in float.

Glow redistributes the counts of a histogram over equal bins whenever its range grows, which moves some of them into
the wrong bins. Here a bin is 2^exponent wide and starts at a multiple of its width; when the range grows, the width is
doubled, which merges pairs of bins. So counts are exact, and merging the distributions of two halves of the data gives
that of all data.
"""

from __future__ import annotations

import hashlib
import math
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
from mlhood.errors import CompilerError

BINS = 2048
# Bins narrower than float32's precision would be empty; 2^-149 is the smallest positive float32.
_MANTISSA_BITS, _MIN_EXPONENT = 24, -149
# BERT's mask is -10,000.
_LEAST_MASK = 1e4


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


# -- distributions


@dataclass(frozen=True, eq=False)
class Distribution:
    """The elements seen so far.

    Args:
        low: The minimum.
        high: The maximum.
        exponent: The bins are 2^exponent wide: the smallest exponent for which `BINS` of them cover the range.
        first: Bin i holds the elements in [(first + i) 2^exponent, (first + i + 1) 2^exponent).
        counts: int64, the number of elements in each bin; the first and the last are not empty.
    """

    low: float
    high: float
    exponent: int
    first: int
    counts: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray) -> Distribution:
        """Return the distribution of a non-empty array's elements.

        Raises:
            CompilerError: The array is empty, or an element is infinite or NaN.
        """
        if not array.size or not np.isfinite(array).all():
            raise CompilerError("only finite numbers can be profiled", got=describe_invalid(array))
        low, high = float(array.min()), float(array.max())
        exponent = _exponent(low, high)
        first = _bin(low, exponent)
        bins = np.floor(np.ldexp(array.ravel().astype(np.float64), -exponent)).astype(np.int64) - first
        return cls(low, high, exponent, first, np.bincount(bins).astype(np.int64))

    @property
    def count(self) -> int:
        """Number of elements."""
        return int(self.counts.sum())

    @property
    def edges(self) -> np.ndarray:
        """The edges of the bins: float64, one more than there are bins."""
        return np.ldexp(np.arange(self.first, self.first + len(self.counts) + 1, dtype=np.float64), self.exponent)

    @property
    def is_mask(self) -> bool:
        """Whether some elements are so large, and all others so small, that 8 bits would hold nothing of the others.

        Models without infinities hide attention scores by adding -10,000 or the least float.
        """
        limit = max(-self.low, self.high)
        if limit < _LEAST_MASK:
            return False
        edges = self.edges
        magnitude = np.minimum(np.abs(edges[:-1]), np.abs(edges[1:]))[self.counts > 0]
        return not ((magnitude > limit / 64) & (magnitude < limit / 4)).any()

    def merge(self, other: Distribution) -> Distribution:
        """Return the distribution of the elements of both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        exponent = _exponent(low, high)
        first, last = _bin(low, exponent), _bin(high, exponent)
        counts = np.zeros(last - first + 1, np.int64)
        for part in (self, other):
            bins = (np.arange(len(part.counts)) + part.first) >> min(exponent - part.exponent, 62)
            np.add.at(counts, bins - first, part.counts)
        return Distribution(low, high, exponent, first, counts)


def _bin(real: float, exponent: int) -> int:
    return math.floor(math.ldexp(real, -exponent))


def _exponent(low: float, high: float) -> int:
    """Return the smallest exponent for which `BINS` bins cover the range; a function of the range, monotonic in it."""
    finest = math.frexp(max(abs(low), abs(high)))[1] - _MANTISSA_BITS if low or high else _MIN_EXPONENT
    spread = math.frexp(high - low)[1] - BINS.bit_length() if high > low else _MIN_EXPONENT
    exponent = max(finest, spread, _MIN_EXPONENT)
    while _bin(high, exponent) - _bin(low, exponent) + 1 > BINS:
        exponent += 1
    return exponent


def describe_invalid(array: np.ndarray) -> str:
    """Return why an array has no distribution: it is empty, or how many elements are NaN or infinite."""
    if not array.size:
        return "no elements"
    return f"{int(np.isnan(array).sum())} nan and {int(np.isinf(array).sum())} inf among {array.size} elements"
