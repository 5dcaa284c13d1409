"""Operators that make larger pictures: transposed convolution, resizing, and blocks of pixels."""

from __future__ import annotations

import math

import numpy as np

from mlhood.compiler.backends.c.kernel import (
    Kernel,
    Lines,
    at,
    c_type,
    loop,
    nest,
    shape_of,
    size_of,
    strides_of,
    visit,
)
from mlhood.compiler.backends.c.literals import table
from mlhood.compiler.backends.c.products import indices_of
from mlhood.compiler.operators.depth_space import Blocks
from mlhood.compiler.operators.resize import Resize
from mlhood.compiler.operators.transposed_convolution import ConvTranspose
from mlhood.errors import CompilerError


def conv_transpose(kernel: Kernel) -> Lines:
    """Return a ConvTranspose: y starts as the bias, then each element of x adds a copy of the kernel to it."""
    kernel.require_float()
    operator, x, w, y = kernel.operator, shape_of(kernel.x), shape_of(kernel.input(1)), shape_of(kernel.y)
    if not isinstance(operator, ConvTranspose):
        return []
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


def blocks(kernel: Kernel) -> Lines:
    """Return a DepthToSpace or SpaceToDepth: the axes of x, split, in the order of the result."""
    operator = kernel.operator
    if not isinstance(operator, Blocks):
        return []
    view = operator.view(np.zeros(shape_of(kernel.x), np.int8))  # of bytes, so that strides count elements
    return visit(
        view.shape, [view.strides, strides_of(view.shape)], lambda places: [f"y[{places[1]}] = x[{places[0]}];"]
    )


def resize(kernel: Kernel) -> Lines:
    """Return a Resize: for each index of an axis, tables of the elements that it is the weighted sum of."""
    operator, shape, wide = kernel.operator, shape_of(kernel.x), shape_of(kernel.y)
    if not isinstance(operator, Resize) or not size_of(kernel.x):
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
