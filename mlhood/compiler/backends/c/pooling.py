"""Pooling of windows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mlhood.compiler.backends.c.kernel import (
    CKernel,
    Lines,
    at,
    c_type,
    less,
    loop,
    nest,
    number,
    shape_of,
    size_of,
    strides_of,
    suffix,
)
from mlhood.compiler.backends.c.products import indices_of, window_loops
from mlhood.compiler.operators.windows import Window
from mlhood.errors import CompilerError


def _windows(kernel: CKernel, start: Lines, body: Lines, finish: Callable[[str], Lines]) -> Lines:
    """Return the loops over all windows: images times channels i, then positions."""
    x, y = shape_of(kernel.x), shape_of(kernel.y)
    outer, images = indices_of("o", len(x) - 2), math.prod(x[:2])
    steps = [math.prod(y[2:]), *strides_of(y[2:])]
    lines = [*start, *body, *finish(at(["n", *outer], steps))]
    return nest([("n", images), *zip(outer, y[2:], strict=True)], lines)


def _read(kernel: CKernel) -> str:
    x = shape_of(kernel.x)
    return f"x[{at(['n', *indices_of('i', len(x) - 2)], [math.prod(x[2:]), *strides_of(x[2:])])}]"


def lowest(kernel: CKernel) -> str:
    """Return the smallest number of the first input's element type."""
    if kernel.x.is_float:
        return "-INFINITY"
    return number(0 if kernel.x.element == "bool" else np.iinfo(kernel.x.dtype).min, kernel.x.element)


def max_pool(kernel: CKernel) -> Lines:
    """Return a MaxPool."""
    operator = kernel.operator
    if operator.indices:
        raise CompilerError("MaxPool with indices")
    best = f"best = max_{suffix(kernel.x)}(best, {_read(kernel)});"
    body = window_loops(operator.window, shape_of(kernel.x)[2:], [best])
    start = f"{c_type(kernel.x)} best = {lowest(kernel)};"
    return _windows(kernel, [start], body, lambda place: [f"y[{place}] = best;"])


def _counting(window: Window, spatial: tuple[int, ...], count_pads: bool, add: str) -> Lines:
    """Return the loops that sum the elements of a window, and count them, with or without the declared pads."""
    if not count_pads:
        return window_loops(window, spatial, [add, "++count;"])
    inside: list[str] = []
    for axis, size in enumerate(spatial):
        inside += [f"i{axis} >= 0", f"i{axis} < {size}"] if any(window.ends[axis]) or window.ceil else []
    lines = ["++count;", *([f"if ({' && '.join(inside)})", f"    {add}"] if inside else [add])]
    for axis in reversed(range(len(spatial))):
        place = at([f"o{axis}", f"k{axis}"], [window.strides[axis], window.dilations[axis]])
        before, after = window.ends[axis]
        place += f" - {before}" if before else ""
        skip = [f"if (i{axis} >= {spatial[axis] + after})", "    continue;"] if window.ceil else []
        lines = loop(f"k{axis}", window.kernel[axis], [f"const int i{axis} = {place};", *skip, *lines])
    return lines


def average_pool(kernel: CKernel) -> Lines:
    """Return an AveragePool."""
    operator, type = kernel.operator, c_type(kernel.x)
    kernel.require_float()
    body = _counting(operator.window, shape_of(kernel.x)[2:], operator.count_pads, f"sum += {_read(kernel)};")
    return _windows(
        kernel, [f"{type} sum = 0;", "int count = 0;"], body, lambda place: [f"y[{place}] = sum / ({type})count;"]
    )


def counted_windows(kernel: CKernel, finish: Callable[[str], Lines], offset: int) -> Lines:
    """Return a quantised AveragePool up to the sum and the count of each window, which `finish` rescales."""
    operator = kernel.operator
    add = f"sum += {_read(kernel)}{less(offset)};"
    body = _counting(operator.window, shape_of(kernel.x)[2:], operator.count_pads, add)
    return _windows(kernel, ["int64_t sum = 0;", "int count = 0;"], body, finish)


def global_pool(kernel: CKernel, start: Lines, step: str, finish: Callable[[str], Lines]) -> Lines:
    """Return the loops over images times channels n, and over all elements i of each."""
    images = math.prod(shape_of(kernel.x)[:2])
    inner = size_of(kernel.x) // images if images else 0
    body = loop("i", inner, [step.format(x=f"x[{at(['n', 'i'], [inner, 1])}]")])
    return loop("n", images, [*start, *body, *finish("n")])


def global_max_pool(kernel: CKernel) -> Lines:
    """Return a GlobalMaxPool."""
    start = f"{c_type(kernel.x)} best = {lowest(kernel)};"
    step = f"best = max_{suffix(kernel.x)}(best, {{x}});"
    return global_pool(kernel, [start], step, lambda place: [f"y[{place}] = best;"])


def global_average_pool(kernel: CKernel) -> Lines:
    """Return a GlobalAveragePool; the sum is in double precision, as it may be long."""
    kernel.require_float()
    count = float(math.prod(shape_of(kernel.x)[2:]))
    finish = f"({c_type(kernel.y)})(sum / {count})"
    return global_pool(kernel, ["double sum = 0;"], "sum += {x};", lambda place: [f"y[{place}] = {finish};"])
