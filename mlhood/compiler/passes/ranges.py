"""Range analysis: lower and upper bounds of all values, derived from the operators."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import UNBOUNDED, Range
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value

# Larger constants are not scanned for their minimum and maximum.
_MAX_ELEMENTS = 2**16


def compute_ranges(graph: Graph) -> dict[Value, Range]:
    """Return the minimum and maximum that the elements of each node's results can have, NaN aside.

    Bounds of means and sums hold up to rounding, except for a bound of 0, which is exact.
    """
    ranges: dict[Value, Range] = {}
    for node in graph.topological():
        low, high = _result_range(node, ranges)
        for value in node.outputs:
            minimum, maximum = _type_range(value.type)
            ranges[value] = (max(low, minimum), min(high, maximum))
    return ranges


def _result_range(node: Node, ranges: dict[Value, Range]) -> Range:
    """Return the range that the operator derives for its single output from those of its inputs."""
    inputs, (y, *others) = [value for value in node.inputs if value is not None], node.outputs
    if others or any(value.type.quantization for value in (*inputs, y)):
        return UNBOUNDED  # the integers of a quantised value represent other numbers
    result = node.operator.value_range(y.type, *(range_of(value, ranges) for value in inputs))
    return UNBOUNDED if result is None else result


def _type_range(type: TensorType) -> Range:
    if type.dtype.kind not in "iu":
        return UNBOUNDED
    limits = np.iinfo(type.dtype)
    return limits.min, limits.max


def range_of(value: Value, ranges: dict[Value, Range]) -> Range:
    """Return the range of a value: of a constant's elements, or as computed, or of its element type."""
    if isinstance(value, Constant) and 0 < value.data.size <= _MAX_ELEMENTS and value.data.dtype.kind in "iuf":
        low, high = float(value.data.min()), float(value.data.max())
        return (low, high) if low <= high else UNBOUNDED  # comparisons with NaN are false
    return ranges.get(value, _type_range(value.type))
