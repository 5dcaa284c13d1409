"""Reductions along some axes, Softmax, and normalisation by statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlhood.compiler.backends.c.kernel import (
    CKernel,
    Lines,
    at,
    broadcast_strides,
    c_type,
    libm,
    loop,
    nest,
    number,
    shape_of,
    strides_of,
    suffix,
)
from mlhood.compiler.backends.c.pooling import lowest
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.operators.normalization import (
    LogSoftmax,
)
from mlhood.compiler.operators.reduction import _extremes
from mlhood.errors import CompilerError

# start, step with x for the element, and result of a sum in double precision over {n} elements
_SUMS = {
    "ReduceSum": ("0", "sum += {x}", "sum"),
    "ReduceMean": ("0", "sum += {x}", "sum / {n}"),
    "ReduceProd": ("1", "sum *= {x}", "sum"),
    "ReduceL1": ("0", "sum += fabs((double){x})", "sum"),
    "ReduceL2": ("0", "sum += (double){x} * {x}", "sqrt(sum)"),
    "ReduceSumSquare": ("0", "sum += (double){x} * {x}", "sum"),
    "ReduceLogSum": ("0", "sum += {x}", "log(sum)"),
}
_INTEGER_SUMS = {
    "ReduceSum": ("0", "sum += (uint64_t){x}"),
    "ReduceProd": ("1", "sum *= (uint64_t){x}"),
}


class Axes:
    """Kept and reduced axes of a tensor: outer loops over the first, inner ones over the second.

    Args:
        shape: The tensor's shape.
        reduced: Which axes to reduce.
    """

    def __init__(self, shape: Sequence[int], reduced: Sequence[int]) -> None:
        chosen = {normalize_axis(axis, len(shape)) for axis in reduced}
        own = strides_of(shape)
        groups = [[axis for axis in range(len(shape)) if (axis in chosen) == inner] for inner in (False, True)]
        self.outer = [(f"i{axis}", shape[axis]) for axis in groups[0]]
        self.inner = [(f"j{axis}", shape[axis]) for axis in groups[1]]
        self.count = math.prod(size for _, size in self.inner)
        steps = [own[axis] for group in groups for axis in group]
        self.x = at([name for name, _ in (*self.outer, *self.inner)], steps)
        self.y = at([name for name, _ in self.outer], strides_of([size for _, size in self.outer]))


def reduce(kernel: CKernel) -> Lines:
    """Return a reduction."""
    operator = kernel.operator
    axes = Axes(shape_of(kernel.x), operator.axes)
    if operator.name in ("ReduceMax", "ReduceMin"):
        low, high = _extremes(kernel.x.dtype)
        first = number(low if operator.name == "ReduceMax" else high, kernel.x.element)
        helper = f"{operator.name[6:].lower()}_{suffix(kernel.x)}"
        start, step, result = f"{c_type(kernel.x)} best = {first};", f"best = {helper}(best, x[{axes.x}]);", "best"
    elif operator.name == "ReduceLogSumExp":
        return _log_sum_exp(kernel, axes)
    elif kernel.x.is_float:
        _require(kernel, operator.name in _SUMS)
        first, step, result = _SUMS[operator.name]
        start, step = f"double sum = {first};", f"{step.format(x=f'x[{axes.x}]')};"
        result = f"({c_type(kernel.y)})({result.format(n=float(axes.count))})"
    else:
        _require(kernel, operator.name in _INTEGER_SUMS)
        first, step = _INTEGER_SUMS[operator.name]
        start, step, result = (
            f"uint64_t sum = {first};",
            f"{step.format(x=f'x[{axes.x}]')};",
            f"({c_type(kernel.y)})sum",
        )
    return nest(axes.outer, [start, *nest(axes.inner, [step]), f"y[{axes.y}] = {result};"])


def _require(kernel: CKernel, known: bool) -> None:
    if not known:
        raise CompilerError(f"{kernel.operator.name} of {kernel.x.element}")


def _largest(kernel: CKernel, axes: Axes) -> Lines:
    step = f"top = max_{suffix(kernel.x)}(top, x[{axes.x}]);"
    return [f"{c_type(kernel.x)} top = {lowest(kernel)};", *nest(axes.inner, [step])]


def _log_sum_exp(kernel: CKernel, axes: Axes) -> Lines:
    kernel.require_float()
    finite = ["if (top - top != 0) /* infinite, or not a number */", "    top = 0;"]
    step = f"sum += exp((double)x[{axes.x}] - top);"
    last = f"y[{axes.y}] = ({c_type(kernel.y)})(log(sum) + top);"
    return nest(axes.outer, [*_largest(kernel, axes), *finite, "double sum = 0;", *nest(axes.inner, [step]), last])


def arg(kernel: CKernel) -> Lines:
    """Return an ArgMax or ArgMin; NaN, if there is any, is the extreme element."""
    operator = kernel.operator
    axes = Axes(shape_of(kernel.x), (operator.axis,))
    ((index, size),) = axes.inner
    sign = (">" if operator.name == "ArgMax" else "<") + ("=" if operator.last else "")
    best, value = f"x[{axes.x.replace(index, '(int)best')}]", f"x[{axes.x}]"
    test = f"{value} {sign} {best}"
    if kernel.x.is_float:
        test += f" || {value} != {value}" if operator.last else f" || ({value} != {value} && {best} == {best})"
    step = [f"if ({test})", f"    best = {index};"]
    return nest(axes.outer, ["int64_t best = 0;", *loop(index, size, step), f"y[{axes.y}] = best;"])


def softmax(kernel: CKernel) -> Lines:
    """Return a Softmax or LogSoftmax: less the largest element, so that exp does not overflow."""
    operator, type, end = kernel.operator, c_type(kernel.x), libm(kernel.x)
    kernel.require_float()
    axes = Axes(shape_of(kernel.x), operator.axes)
    place = axes.x
    lines = [*_largest(kernel, axes), f"{type} sum = 0;"]
    if isinstance(operator, LogSoftmax):
        lines += nest(axes.inner, [f"sum += exp{end}(x[{place}] - top);"])
        lines += [f"const {type} logarithm = log{end}(sum);"]
        lines += nest(axes.inner, [f"y[{place}] = x[{place}] - top - logarithm;"])
    else:
        lines += nest(axes.inner, [f"y[{place}] = exp{end}(x[{place}] - top);", f"sum += y[{place}];"])
        lines += nest(axes.inner, [f"y[{place}] /= sum;"])
    return nest(axes.outer, lines)


def batch_normalization(kernel: CKernel) -> Lines:
    """Return a BatchNormalization."""
    kernel.require_float()
    shape, operator, type = shape_of(kernel.x), kernel.operator, c_type(kernel.x)
    epsilon = number(operator.epsilon, kernel.x.element)
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


def layer_normalization(kernel: CKernel) -> Lines:
    """Return a LayerNormalization, with its statistics if they are outputs."""
    kernel.require_float()
    shape, operator = shape_of(kernel.x), kernel.operator
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
