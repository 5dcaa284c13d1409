"""Normalisation by statistics."""

from __future__ import annotations

import math

from mlhood.compiler.backends.c.kernel import (
    Kernel,
    Lines,
    at,
    broadcast_strides,
    c_type,
    libm,
    loop,
    nest,
    shape_of,
)
from mlhood.compiler.backends.c.literals import number
from mlhood.compiler.backends.c.reductions import Axes
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.operators.normalization import (
    BatchNormalization,
    InstanceNormalization,
    LayerNormalization,
    LocalResponseNormalization,
)


def batch_normalization(kernel: Kernel) -> Lines:
    """Return a BatchNormalization."""
    kernel.require_float()
    shape, operator, type = shape_of(kernel.x), kernel.operator, c_type(kernel.x)
    epsilon = number(operator.epsilon if isinstance(operator, BatchNormalization) else 0, kernel.x.element)
    inner = math.prod(shape[2:])
    place = at(["n", "c", "i"], [shape[1] * inner, inner, 1])
    factor = f"const {type} factor = scale[c] / sqrt{libm(kernel.x)}(variance[c] + {epsilon});"
    body = loop("i", inner, [f"y[{place}] = (x[{place}] - mean[c]) * factor + bias[c];"])
    return nest([("n", shape[0]), ("c", shape[1])], [factor, *body])


def _statistics(place: str, loops: list[tuple[str, int]], epsilon: float) -> Lines:
    count = float(math.prod(size for _, size in loops))
    return [
        "double sum = 0, squares = 0;",
        *nest(loops, [f"sum += x[{place}];"]),
        f"const double mean = sum / {count};",
        *nest(loops, [f"squares += (x[{place}] - mean) * (x[{place}] - mean);"]),
        f"const double inverse = 1 / sqrt(squares / {count} + {epsilon!r});",
    ]


def instance_normalization(kernel: Kernel) -> Lines:
    """Return an InstanceNormalization."""
    kernel.require_float()
    shape, operator = shape_of(kernel.x), kernel.operator
    epsilon = operator.epsilon if isinstance(operator, InstanceNormalization) else 0.0
    inner = math.prod(shape[2:])
    place = at(["n", "c", "i"], [shape[1] * inner, inner, 1])
    value = f"({c_type(kernel.y)})((x[{place}] - mean) * inverse) * scale[c] + bias[c]"
    body = [*_statistics(place, [("i", inner)], epsilon), *loop("i", inner, [f"y[{place}] = {value};"])]
    return nest([("n", shape[0]), ("c", shape[1])], body)


def layer_normalization(kernel: Kernel) -> Lines:
    """Return a LayerNormalization, with its statistics where they are asked for."""
    kernel.require_float()
    shape, operator = shape_of(kernel.x), kernel.operator
    if not isinstance(operator, LayerNormalization):
        return []
    axes = Axes(shape, range(normalize_axis(operator.axis, len(shape)), len(shape)))
    names = [name for name, _ in (*axes.outer, *axes.inner)]

    def vector(position: int) -> str:
        return f"{kernel.names[position]}[{at(names, broadcast_strides(shape_of(kernel.input(position)), shape))}]"

    value = f"({c_type(kernel.y)})((x[{axes.x}] - mean) * inverse) * {vector(1)}"
    value += f" + {vector(2)}" if kernel.has(2) else ""
    body = [*_statistics(axes.x, axes.inner, operator.epsilon), *nest(axes.inner, [f"y[{axes.x}] = {value};"])]
    if operator.statistics:
        body += [f"y1[{axes.y}] = (float)mean;", f"y2[{axes.y}] = (float)inverse;"]
    return nest(axes.outer, body)


def local_response_normalization(kernel: Kernel) -> Lines:
    """Return an LRN: each element by those of the channels around it."""
    kernel.require_float()
    shape, operator, element, end = shape_of(kernel.x), kernel.operator, kernel.x.element, libm(kernel.x)
    if not isinstance(operator, LocalResponseNormalization):
        return []
    channels, inner = shape[1], math.prod(shape[2:])
    place, near = (at(["n", c, "i"], [channels * inner, inner, 1]) for c in ("c", "k"))
    before, after = (min(size, channels) for size in ((operator.size - 1) // 2, operator.size // 2))
    bounds = [
        f"const int first = c < {before} ? 0 : c - {before};",
        f"const int last = c + {after} < {channels} ? c + {after} : {channels - 1};",
    ]
    numbers = [number(value, element) for value in (operator.bias, operator.alpha / operator.size, operator.beta)]
    body = [
        *bounds,
        f"{c_type(kernel.x)} sum = 0;",
        "for (int k = first; k <= last; ++k) {",
        f"    sum += x[{near}] * x[{near}];",
        "}",
        f"y[{place}] = x[{place}] / pow{end}({numbers[0]} + {numbers[1]} * sum, {numbers[2]});",
    ]
    return nest([("n", shape[0]), ("c", channels), ("i", inner)], body)
