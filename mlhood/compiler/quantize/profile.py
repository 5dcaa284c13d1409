"""What the tensors of a graph hold on real data: the range and histogram of every float value.

The graph to profile is the one to quantise: the optimised one, in which an activation is part of its convolution, so
that only values that are stored are profiled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter, check_batch
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.hir.values import Value
from mlhood.compiler.quantize.distribution import Distribution
from mlhood.errors import CompilerError

_FORMAT = "mlhood profile 1"
# ResNet-50's profile has about 2 MB; a larger file than this is something else.
_LARGEST = 256 * 2**20


@dataclass(frozen=True)
class Profile:
    """Distributions by the value's name, of placeholders and of what nodes make.

    Args:
        graph: Fingerprint of the profiled graph: a hash of its text form, in which each constant stands with its own.
        distributions: The values' distributions.
    """

    graph: str
    distributions: dict[str, Distribution] = field(default_factory=dict)

    def range(self, name: str) -> tuple[float, float]:
        """Return the least and the largest element of a value.

        Raises:
            CompilerError: The value was not profiled.
        """
        return self.of(name).low, self.of(name).high

    def of(self, name: str) -> Distribution:
        """Return the distribution of a value.

        Raises:
            CompilerError: The value was not profiled.
        """
        if name not in self.distributions:
            raise CompilerError("the profile does not know this value", where=f"value {name!r}")
        return self.distributions[name]

    def check(self, graph: Graph) -> None:
        """Check that this is a profile of a graph.

        Raises:
            CompilerError: It is one of another graph.
        """
        if self.graph != fingerprint(graph):
            raise CompilerError(
                "this profile is of another graph",
                where=f"graph {graph.name!r}",
                expected=f"fingerprint {fingerprint(graph)}",
                got=self.graph,
                todo="profile this very graph: the optimised one, with these weights",
            )

    def merge(self, other: Profile) -> Profile:
        """Return the profile of both data together, as if they had been profiled in one run.

        Raises:
            CompilerError: The other profile is of another graph.
        """
        if other.graph != self.graph:
            raise CompilerError("profiles of two graphs cannot be merged", expected=self.graph, got=other.graph)
        merged = dict(self.distributions)
        for name, distribution in other.distributions.items():
            merged[name] = merged[name].merge(distribution) if name in merged else distribution
        return Profile(self.graph, merged)

    def save(self, path: str | Path) -> Path:
        """Write the profile as JSON, whole or not at all.

        Raises:
            OutputError: The file cannot be written.
        """
        from mlhood.files.atomic import write_whole  # takes torch along, which a profile can do without

        values = {name: distribution.to_json() for name, distribution in self.distributions.items()}
        text = json.dumps({"format": _FORMAT, "graph": self.graph, "values": values}, separators=(",", ":"))
        return write_whole(path, text.encode())

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read what `save` wrote.

        Raises:
            CompilerError: The file cannot be read, or is no profile.
        """
        data = _read(Path(path))
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise CompilerError("this file is no profile", where=path, expected=f'JSON with "format": "{_FORMAT}"')
        graph, values = data.get("graph"), data.get("values")
        if not isinstance(graph, str) or not isinstance(values, dict):
            raise CompilerError("the profile is damaged", where=path, expected='"graph" and "values"')
        read = {name: Distribution.from_json(one, f"{path}, value {name!r}") for name, one in values.items()}
        return cls(graph, read)


def _read(path: Path) -> object:
    try:
        if path.stat().st_size > _LARGEST:
            raise CompilerError("the file is too large for a profile", where=path, expected=f"{_LARGEST} bytes at most")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CompilerError("the profile cannot be read", where=path, got=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise CompilerError("this file is no profile", where=path, got=error) from error


def fingerprint(graph: Graph) -> str:
    """Return a hash of a graph's text form: of its nodes, names, types and weights."""
    return hashlib.sha256(to_text(graph).encode()).hexdigest()[:16]


def profile(graph: Graph, batches: Iterable[Mapping[str, np.ndarray]]) -> Profile:
    """Run a graph over calibration data and record the distribution of each float value.

    Args:
        graph: The float graph that is to be quantised.
        batches: Inputs for one run after another, each an array for each placeholder by name.

    Raises:
        CompilerError: There are no data, an input does not fit, or a value is infinite or not a number (the error names
            the first).
    """
    interpreter = Interpreter(graph)
    seen: dict[str, Distribution] = {}

    def observe(value: Value, array: np.ndarray) -> None:
        if value.type.is_float and array.size:
            seen[value.name] = _grown(seen.get(value.name), value, array)

    for inputs in _checked(batches):
        for name, value in graph.placeholders.items():
            given = inputs.get(name)
            if isinstance(given, (np.ndarray, np.generic)) and given.dtype == value.type.dtype:
                observe(value, np.asarray(given))  # other input is refused below
        interpreter.run(inputs, observe)
    if not seen:
        raise CompilerError(
            "there is nothing to profile",
            where=f"graph {graph.name!r}",
            todo="give at least one batch, and a graph that computes with reals",
        )
    return Profile(fingerprint(graph), seen)


def _checked(batches: Iterable[Mapping[str, np.ndarray]]) -> Iterator[Mapping[str, np.ndarray]]:
    if not isinstance(batches, Iterable):
        raise CompilerError(
            "these are no data to profile with",
            expected="batches one after another, each a dict with an array for each input",
            got=type(batches).__name__,
            todo="give a list: profile(graph, [{'image': images}])",
        )
    for inputs in batches:
        check_batch(inputs)
        yield inputs


def _grown(before: Distribution | None, value: Value, array: np.ndarray) -> Distribution:
    try:
        new = Distribution.of(array)
    except CompilerError as error:
        where = f"value {value.name!r}"
        todo = "look for overflow in the layer that makes it, and for nan in the data"
        raise CompilerError(error.what, where=where, got=error.parts.get("got"), todo=todo) from error
    return new if before is None else before.merge(new)
