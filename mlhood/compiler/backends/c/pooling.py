"""Pooling of windows, and what makes pictures larger: transposed convolution, resizing, blocks of pixels."""

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
    table,
)
from mlhood.compiler.backends.c.products import indices_of, window_loops
from mlhood.compiler.operators.pooling import MaxPool
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
        return _max_pool_with_indices(kernel, operator)
    best = f"best = max_{suffix(kernel.x)}(best, {_read(kernel)});"
    body = window_loops(operator.window, shape_of(kernel.x)[2:], [best])
    start = f"{c_type(kernel.x)} best = {lowest(kernel)};"
    return _windows(kernel, [start], body, lambda place: [f"y[{place}] = best;"])


def _max_pool_with_indices(kernel: CKernel, operator: MaxPool) -> Lines:
    x, read = shape_of(kernel.x), _read(kernel)
    spatial = x[2:]
    steps = strides_of(spatial[::-1])[::-1] if operator.column_major else strides_of(spatial)
    flat = at(["n", *indices_of("i", len(spatial))], [math.prod(spatial), *steps])
    better = f"index < 0 || {read} > best"
    better += f" || ({read} != {read} && best == best)" if kernel.x.is_float else ""
    keep = [f"if ({better}) {{", f"    best = {read};", f"    index = {flat};", "}"]
    body = window_loops(operator.window, spatial, keep)
    start = [f"{c_type(kernel.x)} best = {lowest(kernel)};", "int64_t index = -1;"]
    finish = ["index < 0 ? 0 : index"]
    return _windows(kernel, start, body, lambda place: [f"y[{place}] = best;", f"y1[{place}] = {finish[0]};"])


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


def conv_transpose(kernel: CKernel) -> Lines:
    """Return a ConvTranspose: y starts as the bias, then each element of x adds a copy of the kernel to it."""
    kernel.require_float()
    operator, x, w, y = kernel.operator, shape_of(kernel.x), shape_of(kernel.input(1)), shape_of(kernel.y)
    inner, outer, taps = (indices_of(letter, len(x) - 2) for letter in "iok")
    pixels = math.prod(y[2:])
    start = f"y[{at(['n', 'f', 'i'], [y[1] * pixels, pixels, 1])}] = {'bias[f]' if kernel.has(2) else '0'};"
    fill = nest([("n", y[0]), ("f", y[1]), ("i", pixels)], [start])
    feature = "f" if operator.group == 1 else f"(c / {x[1] // operator.group} * {w[1]} + f)"
    product = f"x[{at(['n', 'c', *inner], strides_of(x))}] * w[{at(['c', 'f', *taps], strides_of(w))}]"
    lines = [f"y[{at(['n', feature, *outer], strides_of(y))}] += {product};"]
    for axis in reversed(range(len(inner))):
        pad, size = operator.pads[axis], y[axis + 2]
        steps = [operator.strides[axis], operator.dilations[axis]]
        place = at([inner[axis], taps[axis]], steps) + (f" - {pad}" if pad else "")
        skip = [f"if ({outer[axis]} < 0 || {outer[axis]} >= {size})", "    continue;"]
        lines = loop(taps[axis], w[axis + 2], [f"const int {outer[axis]} = {place};", *skip, *lines])
    return [*fill, *nest([("n", x[0]), ("c", x[1]), ("f", w[1]), *zip(inner, x[2:], strict=True)], lines)]


def resize(kernel: CKernel) -> Lines:
    """Return a Resize: for each index of an axis, tables of the elements that it is the weighted sum of."""
    operator, shape, wide = kernel.operator, shape_of(kernel.x), shape_of(kernel.y)
    if not size_of(kernel.x):
        return []
    if operator.coordinates == "tf_crop_and_resize":
        raise CompilerError("Resize of a region")
    names, lines, weights, loops = indices_of("i", len(shape)), [], [], []
    places = list(names)
    for axis, (_, indices, factors) in {} if shape == wide else operator.neighbours(shape).items():
        taps = len(indices)
        lines += table(f"from{axis}", indices.T.ravel().tolist(), "int32")
        entry = names[axis] if taps == 1 else f"{names[axis]} * {taps} + t{axis}"
        places[axis] = f"from{axis}[{entry}]"
        if taps > 1:
            lines += table(f"weight{axis}", factors.T.ravel().tolist(), kernel.y.element)
            weights.append(f"weight{axis}[{entry}]")
            loops.append((f"t{axis}", taps))
    read = f"x[{at(places, strides_of(shape))}]"
    target = f"y[{at(names, strides_of(wide))}]"
    body = [f"{target} = {read};"]
    if loops:
        add = f"sum += {' * '.join([*weights, read])};"
        body = [f"{c_type(kernel.y)} sum = 0;", *nest(loops, [add]), f"{target} = sum;"]
    return [*lines, *nest(list(zip(names, wide, strict=True)), body)]
