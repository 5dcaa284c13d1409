"""Bases that answer, for a whole family of operators, some of the questions that `Operator` asks."""

from __future__ import annotations

from collections.abc import Iterable

from mlhood.compiler.hir.operator import Operator, Permutation, Range, require, require_unquantized
from mlhood.compiler.hir.types import TensorType, normalize_axis


class Elementwise(Operator):
    """Base: an output element depends on the elements at the same position of the inputs, broadcast to one shape."""

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        return self, permutation


class Movement(Operator):
    """Base: the output's elements are elements of the first input, moved, selected or repeated."""

    family = "shape"
    quantization_rule = "same_parameters"

    def value_range(self, y: TensorType, *inputs: Range) -> Range:
        return inputs[0]


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
