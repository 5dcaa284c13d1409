"""Convolutions and matrix products of reals, and the loops that those of integers share with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mlhood.compiler.backends.c.elementwise import activated
from mlhood.compiler.backends.c.kernel import (
    CKernel,
    Lines,
    at,
    broadcast_strides,
    c_type,
    loop,
    nest,
    number,
    shape_of,
    strides_of,
)
from mlhood.compiler.operators.windows import Window


@dataclass(frozen=True)
class Sum:
    """How products are summed, and what becomes of the sum.

    Args:
        type: The sum's type in C.
        start: What it starts from, by the index of the output channel.
        product: The product of x and w, given their indices and that of the output channel.
        finish: The statements that store the sum, called sum, given the index of y and that of the output channel.
    """

    type: str
    start: Callable[[str], str]
    product: Callable[[str, str, str], str]
    finish: Callable[[str, str], Lines]


def window_loops(window: Window, spatial: tuple[int, ...], body: Lines) -> Lines:
    """Return the loops over the elements of the window at (o0, o1, ...): indices into x are (i0, i1, ...).

    Args:
        window: The sliding window.
        spatial: Lengths of the spatial axes of x.
        body: What is done with each element that is inside of x.
    """
    counts = [int(count) for count in window.output(spatial)]
    lines = body
    for axis in reversed(range(len(spatial))):
        stride, dilation, pad = window.strides[axis], window.dilations[axis], window.pads[axis]
        place = at([f"o{axis}", f"k{axis}"], [stride, dilation]) + (f" - {pad}" if pad else "")
        last = (counts[axis] - 1) * stride + window.spans[axis] - 1 - pad
        tests = [f"i{axis} < 0"] if pad else []
        tests += [f"i{axis} >= {spatial[axis]}"] if last >= spatial[axis] else []
        skip = [f"if ({' || '.join(tests)})", "    continue;"] if tests else []
        lines = loop(f"k{axis}", window.kernel[axis], [f"const int i{axis} = {place};", *skip, *lines])
    return lines


def convolution(kernel: CKernel, sum: Sum) -> Lines:
    """Return the loops of a convolution: images, output channels, positions, then the products of a window."""
    operator, x, w, y = kernel.operator, shape_of(kernel.x), shape_of(kernel.input(1)), shape_of(kernel.y)
    axes = len(x) - 2
    inner, outer = indices_of("i", axes), indices_of("o", axes)
    of_x, of_w, of_y = strides_of(x), strides_of(w), strides_of(y)
    read_w = at(["f", "c", *indices_of("k", axes)], of_w)
    channel = "c" if operator.group == 1 else f"(f / {max(w[0] // operator.group, 1)} * {w[1]} + c)"
    read_x = at(["n", channel, *inner], of_x)
    body = window_loops(operator.window(w), x[2:], [f"sum += {sum.product(read_x, read_w, 'f')};"])
    lines = [f"{sum.type} sum = {sum.start('f')};", *loop("c", w[1], body)]
    lines += sum.finish(at(["n", "f", *outer], of_y), "f")
    return nest([("n", y[0]), ("f", y[1]), *zip(outer, y[2:], strict=True)], lines)


def indices_of(letter: str, count: int) -> list[str]:
    """Return numbered indices, also for a single axis."""
    return [f"{letter}{axis}" for axis in range(count)]


def dense(kernel: CKernel, sum: Sum) -> Lines:
    """Return the loops of a dense layer: rows of x, output features, then the products of a row."""
    features, depth = shape_of(kernel.input(1))
    rows = math.prod(shape_of(kernel.y)[:-1])
    product = sum.product(at(["n", "k"], [depth, 1]), at(["f", "k"], [depth, 1]), "f")
    lines = [f"{sum.type} sum = {sum.start('f')};", *loop("k", depth, [f"sum += {product};"])]
    lines += sum.finish(at(["n", "f"], [features, 1]), "f")
    return nest([("n", rows), ("f", features)], lines)


def matrices(kernel: CKernel, sum: Sum) -> Lines:
    """Return the loops of a product as numpy.matmul: leading axes, rows m, columns n, then the products along k.

    The channel that `sum` is given is "m, n".
    """
    a, b, y = shape_of(kernel.x), shape_of(kernel.input(1)), shape_of(kernel.y)
    of_a, of_b = list(strides_of(a)), list(strides_of(b))
    rows, columns = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    lead = y[: len(y) - (len(a) > 1) - (len(b) > 1)]
    names = indices_of("i", len(lead))
    left = [*broadcast_of(a[:-2], of_a[:-2], lead), of_a[-2] if len(a) > 1 else 0, of_a[len(a) - 1]]
    right = [*broadcast_of(b[:-2], of_b[:-2], lead), of_b[-2] if len(b) > 1 else of_b[0], 1 if len(b) > 1 else 0]
    product = sum.product(at([*names, "m", "k"], left), at([*names, "k", "n"], right), "m, n")
    lines = [f"{sum.type} sum = {sum.start('m, n')};", *loop("k", a[len(a) - 1], [f"sum += {product};"])]
    steps = [stride * rows * columns for stride in strides_of(lead)]
    lines += sum.finish(at([*names, "m", "n"], [*steps, columns, 1]), "m, n")
    return nest([*zip(names, lead, strict=True), ("m", rows), ("n", columns)], lines)


def broadcast_of(shape: Sequence[int], strides: Sequence[int], wide: Sequence[int]) -> list[int]:
    """Return the given strides of leading axes, as read in the shape that these are broadcast to."""
    steps = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    return [0] * (len(wide) - len(shape)) + steps


def _plain(kernel: CKernel, bias: int | None, finish: Callable[[str, str], Lines]) -> Sum:
    kernel.require_float()
    a, b = kernel.names[:2]
    start = kernel.names[bias] if bias is not None and kernel.has(bias) else None
    return Sum(
        c_type(kernel.y),
        lambda f: f"{start}[{f}]" if start else "0",
        lambda i, j, f: f"{a}[{i}] * {b}[{j}]",
        finish,
    )


def conv(kernel: CKernel) -> Lines:
    """Return a Conv, with the activation and the residual branch that are fused into it."""
    activation = kernel.operator.activation

    def finish(place: str, f: str) -> Lines:
        residual = [f"sum += z[{place}];"] if kernel.has(3) else []
        return [*residual, f"y[{place}] = {activated(activation, 'sum', kernel.y.element)};"]

    return convolution(kernel, _plain(kernel, 2, finish))


def fully_connected(kernel: CKernel) -> Lines:
    """Return a FullyConnected, with the activation that is fused into it."""
    return dense(kernel, _plain(kernel, 2, _activated_sum(kernel)))


def _activated_sum(kernel: CKernel) -> Callable[[str, str], Lines]:
    value = activated(kernel.operator.activation, "sum", kernel.y.element)
    return lambda place, f: [f"y[{place}] = {value};"]


def block_dense(kernel: CKernel) -> Lines:
    """Return a BlockDense: a FullyConnected whose weights are integers with a scale for each block of a row."""
    x, w, scale = kernel.names[:3]
    blocks = shape_of(kernel.input(2))[1]
    real = _plain(kernel, 3, _activated_sum(kernel))

    def product(i: str, j: str, f: str) -> str:
        return f"{x}[{i}] * ({w}[{j}] * {scale}[{at(['f'], [blocks])} + k / {kernel.operator.block}])"

    return dense(kernel, replace(real, product=product))


def matmul(kernel: CKernel) -> Lines:
    """Return a MatMul."""
    return matrices(kernel, _plain(kernel, None, lambda place, f: [f"y[{place}] = sum;"]))


def gemm(kernel: CKernel) -> Lines:
    """Return a Gemm: transposed factors are read with exchanged strides."""
    kernel.require_float()
    operator, (rows, columns) = kernel.operator, shape_of(kernel.y)
    a, b, element = shape_of(kernel.x), shape_of(kernel.input(1)), kernel.y.element
    left = (1, a[1]) if operator.transpose_a else (a[1], 1)
    right = (1, b[1]) if operator.transpose_b else (b[1], 1)
    depth = a[0] if operator.transpose_a else a[1]
    read = f"a[{at(['m', 'k'], left)}] * b[{at(['k', 'n'], right)}]"
    value = "sum" if operator.alpha == 1 else f"{number(operator.alpha, element)} * sum"
    if kernel.has(2):
        addend = f"c[{at(['m', 'n'], broadcast_strides(shape_of(kernel.input(2)), (rows, columns)))}]"
        value += f" + {addend}" if operator.beta == 1 else f" + {number(operator.beta, element)} * {addend}"
    body = [f"{c_type(kernel.y)} sum = 0;", *loop("k", depth, [f"sum += {read};"])]
    return nest([("m", rows), ("n", columns)], [*body, f"y[{at(['m', 'n'], [columns, 1])}] = {value};"])
