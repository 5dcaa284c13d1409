"""Between which numbers a value lies, as far as the operators before it say so."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import UNBOUNDED, Range
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value

# Of longer constants the least and the largest element are not looked for.
_LONGEST = 2**16


def ranges(graph: Graph) -> dict[Value, Range]:
    """Return the least and the largest number that each value a node makes can hold, if it is a number at all.

    Bounds of means and sums hold up to rounding, except for 0, which holds exactly.
    """
    found: dict[Value, Range] = {}
    for node in graph.topological():
        low, high = _derived(node, found)
        for value in node.outputs:
            least, most = _limits(value.type)
            found[value] = (max(low, least), min(high, most))
    return found


def _derived(node: Node, known: dict[Value, Range]) -> Range:
    """Return the bounds that the operator derives for its single output from those of its inputs."""
    read, (y, *others) = [value for value in node.inputs if value is not None], node.outputs
    if others or any(value.type.quantization for value in (*read, y)):
        return UNBOUNDED  # quantised: the integers stand for other numbers
    bounds = node.operator.value_range(y.type, *(range_of(value, known) for value in read))
    return UNBOUNDED if bounds is None else bounds


def _limits(type: TensorType) -> Range:
    if type.dtype.kind not in "iu":
        return UNBOUNDED
    limits = np.iinfo(type.dtype)
    return limits.min, limits.max


def range_of(value: Value, found: dict[Value, Range]) -> Range:
    """Return the range of a value: as found by `ranges`, or as a constant's elements or the element type say."""
    if isinstance(value, Constant) and 0 < value.data.size <= _LONGEST and value.data.dtype.kind in "iuf":
        low, high = float(value.data.min()), float(value.data.max())
        return (low, high) if low <= high else UNBOUNDED  # not a number compares as false
    return found.get(value, _limits(value.type))
