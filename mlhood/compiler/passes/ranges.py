"""Between which numbers a value lies, as far as the operators before it say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.activation import Activation, operator_of
from mlhood.compiler.operators.arithmetic import Add, Max, Min
from mlhood.compiler.operators.elementwise import Clip, HardSigmoid, LeakyRelu, Relu
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.shape import Flatten

Range = tuple[float, float]

ANYTHING: Range = (-math.inf, math.inf)
# Of longer constants the least and the largest element are not looked for.
_LONGEST = 2**16
_FIXED: dict[str, Range] = {
    "Exp": (0.0, math.inf),
    "Sqrt": (0.0, math.inf),
    "Sigmoid": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
}


def ranges(graph: Graph) -> dict[Value, Range]:
    """Return the least and the largest number that each value a node makes can hold, if it is a number at all.

    Bounds of means and sums hold up to rounding, except for 0, which holds exactly.
    """
    found: dict[Value, Range] = {}
    for node in graph.topological():
        inputs = [range_of(value, found) for value in node.inputs if value is not None]
        for value in node.outputs:
            low, high = _made(node, inputs)
            least, most = _limits(value.type)
            found[value] = (max(low, least), min(high, most))
    return found


def bounded(operator: Operator, x: Range) -> Range:
    """Return the range behind an activation that does not fall as its input grows; ANYTHING for other operators."""
    if isinstance(operator, (Relu, Clip)):
        low, high = limits_of(operator)
        return _map(lambda v: min(max(v, low), high), x)
    if isinstance(operator, LeakyRelu) and operator.alpha > 0:
        return _map(lambda v: v if v > 0 else v * operator.alpha, x)
    if isinstance(operator, HardSigmoid):
        return (0.0, 1.0)
    return _FIXED.get(type(operator).__name__, ANYTHING)


def limits_of(operator: Operator) -> Range:
    """Return the limits of a Clip, infinite where there is none, or of Relu."""
    if not isinstance(operator, Clip):
        return (0, math.inf)
    return -math.inf if operator.low is None else operator.low, math.inf if operator.high is None else operator.high


def _map(function: Callable[[float], float], x: Range) -> Range:
    return function(x[0]), function(x[1])


def _limits(type: TensorType) -> Range:
    if type.dtype.kind not in "iu":
        return ANYTHING
    limits = np.iinfo(type.dtype)
    return limits.min, limits.max


def range_of(value: Value, found: dict[Value, Range]) -> Range:
    """Return the range of a value: as found by `ranges`, or as a constant's elements or the element type say."""
    if isinstance(value, Constant) and 0 < value.data.size <= _LONGEST and value.data.dtype.kind in "iuf":
        low, high = float(value.data.min()), float(value.data.max())
        return (low, high) if low <= high else ANYTHING  # not a number compares as false
    return found.get(value, _limits(value.type))


def _made(node: Node, inputs: list[Range]) -> Range:
    operator: Any = node.operator
    if node.outputs[0].type.quantization is not None or any(v is not None and v.type.quantization for v in node.inputs):
        return ANYTHING  # the numbers stand for others
    if getattr(operator, "activation", ()):
        return _activated(operator.activation)
    if isinstance(operator, (MaxPool, AveragePool)):
        return _pooled(operator, inputs[0])
    if isinstance(operator, Pad):
        return _hull([inputs[0], (operator.value, operator.value)]) if operator.mode == "constant" else inputs[0]
    if operator.name == "Concat":
        return _hull(inputs)
    if operator.moves or isinstance(operator, (Flatten, GlobalAveragePool, GlobalMaxPool)):
        return inputs[0]
    if operator.name == "ReduceMean":
        return inputs[0]
    if isinstance(operator, (Max, Min)) or (isinstance(operator, Add) and node.outputs[0].type.is_float):
        return _combined(operator, *inputs)  # sums of integers may wrap around
    if type(operator) is Softmax:
        return (0.0, 1.0)
    return bounded(operator, inputs[0]) if len(inputs) == 1 else ANYTHING


def _activated(activation: Activation) -> Range:
    return bounded(operator_of(activation), ANYTHING)


def _pooled(operator: MaxPool | AveragePool, x: Range) -> Range:
    # a dilated window may lie wholly in the padding, and one that `ceil` adds in what is behind it
    outside = any(operator.pads) and max(operator.dilations) > 1
    if getattr(operator, "indices", False) or operator.ceil or outside:
        return ANYTHING
    counts = isinstance(operator, AveragePool) and operator.count_pads and any(operator.pads)
    return _hull([x, (0.0, 0.0)]) if counts else x


def _combined(operator: object, a: Range, b: Range) -> Range:
    if isinstance(operator, Max):
        return max(a[0], b[0]), max(a[1], b[1])
    if isinstance(operator, Min):
        return min(a[0], b[0]), min(a[1], b[1])
    low, high = a[0] + b[0], a[1] + b[1]
    return low if low == low else -math.inf, high if high == high else math.inf


def _hull(ranges: Iterable[Range]) -> Range:
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)
