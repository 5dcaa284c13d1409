"""Operators whose attributes depend on the lengths of dynamic axes, such as Expand to [batch, 1, 16].

torch exports them wherever a network asks for `x.shape`. The lengths are those of the graph's inputs, so they are known
as soon as these have arrived: the operator takes these inputs too, for their shapes only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.lengths import Dim, Length, evaluate, names_in
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Shape, TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.errors import CompilerError


@dataclass(frozen=True)
class Dynamic(Operator):
    """Another operator, with expressions of the lengths of dynamic axes among its attributes.

    Inputs: those of the operator, then values whose shapes give the lengths. A graph in which these are known has the
    operator itself instead.

    Attributes:
        operator: The operator.
        count: Its number of inputs.
        names: Each name in the expressions, which of the further inputs has that axis, and which axis of it that is.
    """

    operator: Operator
    count: int
    names: tuple[tuple[str, int, int], ...]

    family = "shape"

    @property
    def attributes(self) -> dict[str, Any]:
        return {"operator": self.operator.name, **self.operator.attributes}

    @property
    def non_default_attributes(self) -> dict[str, Any]:
        return {"operator": self.operator.name, **self.operator.non_default_attributes}

    def specialized(self, shapes: Sequence[Shape | None]) -> tuple[Operator, int]:
        operator = self._with_lengths(shapes)
        return (self, len(shapes)) if any(_lengths_in(operator)) else (operator, self.count)

    def infer(self, *types: TensorType | None) -> Any:
        operator = self._with_lengths([None if type is None else type.shape for type in types])
        return operator.infer(*types[: self.count])

    def evaluate(self, *arrays: np.ndarray | None) -> Any:
        operator = self._with_lengths([None if array is None else array.shape for array in arrays])
        return operator.evaluate(*arrays[: self.count])

    def workspace(self, *types: TensorType | None) -> int:
        operator = self._with_lengths([None if type is None else type.shape for type in types])
        return operator.workspace(*types[: self.count])

    def _with_lengths(self, shapes: Sequence[Shape | None]) -> Operator:
        lengths = {name: Length.of((shapes[self.count + i] or ())[axis]) for name, i, axis in self.names}

        def known(part: Any) -> Any:
            return evaluate(part, lengths) if isinstance(part, Length) else part

        attributes = {
            key: tuple(map(known, value)) if isinstance(value, tuple) else known(value)
            for key, value in self.operator.attributes.items()
        }
        return type(self.operator)(**attributes)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str | None:
        return self.operator.to_onnx(writer, inputs[: self.count], name)


def with_references(
    graph: Graph, operator: Operator, inputs: Sequence[Value | None]
) -> tuple[Operator, Sequence[Value | None]]:
    """Return an operator and its inputs, as a `Dynamic` one if its attributes are not all known.

    Raises:
        CompilerError: No value of the graph has an axis of the name that an attribute needs.
    """
    names = dict.fromkeys(name for length in _lengths_in(operator) for name in names_in(length))
    if not names:
        return operator, inputs
    found: dict[str, tuple[Value, int]] = {}
    for value in (*graph.placeholders.values(), *graph.values()):
        for axis, size in enumerate(value.type.shape):
            if size in names:
                found.setdefault(str(size), (value, axis))
        if len(found) == len(names):
            break
    else:
        missing = next(name for name in names if name not in found)
        todo = "give the lengths of the dynamic axes: compile(model, dims={...}), or --dim NAME=LENGTH"
        raise CompilerError("no input has an axis of the length that this node needs", got=missing, todo=todo)
    references = list(dict.fromkeys(value for value, _ in found.values()))
    axes = tuple((name, references.index(value), axis) for name, (value, axis) in found.items())
    return Dynamic(operator, len(inputs), axes), (*inputs, *references)


def is_dynamic(lengths: Sequence[Dim]) -> bool:
    """Return whether a length among these is not a number."""
    return any(isinstance(size, str) for size in lengths)


def _lengths_in(operator: Operator) -> Iterator[Length]:
    for value in operator.attributes.values():
        yield from (part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Length))


OPERATORS = (Dynamic,)
