"""Bases that answer, for a whole family of operators, some of the questions that `Operator` asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlhood.compiler.hir.operator import (
    Operator,
    Permutation,
    Range,
    require,
    require_unquantized,
    unsupported,
)
from mlhood.compiler.hir.types import TensorType, normalize_axis

NO_PRODUCTS = unsupported("it sums no products")
NOT_REAL = unsupported("its inputs or results do not represent real numbers")
STAYS_FLOAT = unsupported("no integer form is written for it")
NO_BOUNDS = unsupported("no bounds follow from its inputs' bounds, or no pass needs them")
POSITIONAL = unsupported("what it does depends on the order of the axes")
MADE_BY_PASS = unsupported("a pass makes it; no ONNX operator is imported as it")
NOT_EXPORTED = unsupported("no export rule is written: the networks that are exported have none")


def export_directly(self: Operator, writer: Any, inputs: list[str], name: str) -> str:
    """Export rule, as the method `to_onnx` of an operator: one ONNX node with the same attributes; see `onnx_names`."""
    attributes = {dict(self.onnx_names).get(key, key): value for key, value in self.attributes.items()}
    return writer.emit(self.onnx[0], *inputs, name=name, **attributes)


class Elementwise(Operator):
    """Base: an output element depends on the elements at the same position of the inputs, broadcast to one shape."""

    macs = NO_PRODUCTS

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return self, permutation


class Movement(Operator):
    """Base: the output's elements are elements of the first input, moved, selected or repeated."""

    family = "shape"
    quantization_rule = "same_parameters"
    macs = NO_PRODUCTS

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return inputs[0]


class IntegerArithmetic:
    """Mixin: answers of operators that quantisation makes: they compute with integers that represent reals."""

    quantization_rule = unsupported("it computes with integers already")
    sink_transpose = unsupported("transposes are sunk before a graph is quantised")
    value_range = unsupported("the integers represent other numbers")


def real_along(x: TensorType, axes: Iterable[int]) -> TensorType:
    """Type rule of operators on reals along some axes: the type of x.

    Raises:
        CompilerError: x is quantised or has integers, or does not have these axes.
    """
    require_unquantized(x)
    require(x.is_float, "the operator requires floating-point elements", got=x.element)
    for axis in axes:
        normalize_axis(axis, x.rank)
    return x


def transposed_axes(axes: Iterable[int], permutation: Permutation) -> tuple[int, ...]:
    """Return the axes of x that axes of T(x) are, T being a Transpose by the permutation."""
    return tuple(permutation[normalize_axis(axis, len(permutation))] for axis in axes)


def without_axes(permutation: Permutation, axes: tuple[int, ...]) -> Permutation:
    """Return how a permutation orders the axes that remain when some, counted before it, are removed."""
    kept = [axis for axis in permutation if axis not in axes]
    order = sorted(kept)
    return tuple(order.index(axis) for axis in kept)


def hull(*ranges: Range) -> Range:
    """Return the smallest range that contains all the given ones."""
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)
