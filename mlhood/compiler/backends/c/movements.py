"""Operators that permute, select, repeat and join elements."""

from __future__ import annotations

import math

import numpy as np

from mlhood.compiler.backends.c.kernel import (
    CKernel,
    Lines,
    at,
    broadcast_strides,
    indices,
    loop,
    nest,
    number,
    shape_of,
    size_of,
    strides_of,
    table,
    visit,
)
from mlhood.compiler.hir.types import normalize_axis
from mlhood.compiler.operators.movement import Slice
from mlhood.compiler.operators.padding import Pad


def _copy(shape: tuple[int, ...], read: tuple[int, ...], base: int = 0) -> Lines:
    """Return the loops that write a tensor in order, and read another with strides, from a first element on."""

    def body(places: list[str]) -> Lines:
        return [f"y[{places[1]}] = x[{at([places[0]], [1], base) if places[0] != '0' else base}];"]

    return visit(shape, [read, strides_of(shape)], body)


def transpose(kernel: CKernel) -> Lines:
    """Return a Transpose: axis i of y has the stride of the axis of x that it is."""
    strides = strides_of(shape_of(kernel.x))
    return _copy(shape_of(kernel.y), tuple(strides[axis] for axis in kernel.operator.permutation))


def expand(kernel: CKernel) -> Lines:
    """Return an Expand: a repeated axis has stride 0."""
    wide = shape_of(kernel.y)
    return _copy(wide, broadcast_strides(shape_of(kernel.x), wide))


def extract(kernel: CKernel) -> Lines:
    """Return a Slice: strides times steps, from the first element that is selected."""
    operator, shape = kernel.operator, shape_of(kernel.x)
    axes = operator.axes
    starts, steps = [0] * len(shape), [1] * len(shape)
    for axis in {normalize_axis(axis, len(shape)) for axis in axes}:
        position = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        rest = tuple(size if i == axis else 1 for i, size in enumerate(shape))
        alone = [i for i, each in enumerate(axes) if normalize_axis(each, len(shape)) == axis]
        chosen = _only(operator, alone[-1]).evaluate(np.broadcast_to(position, rest)).ravel()
        starts[axis] = int(chosen[0]) if chosen.size else 0
        steps[axis] = int(chosen[1] - chosen[0]) if chosen.size > 1 else 1
    strides = strides_of(shape)
    base = sum(start * stride for start, stride in zip(starts, strides, strict=True))
    return _copy(shape_of(kernel.y), tuple(a * b for a, b in zip(steps, strides, strict=True)), base)


def _only(operator, position: int) -> Slice:
    fields = (operator.starts, operator.stops, operator.axes, operator.steps)
    return Slice(*((field[position],) for field in fields))


def concat(kernel: CKernel) -> Lines:
    """Return a Concat: each input's rows, at their place in the rows of y."""
    shape = shape_of(kernel.y)
    axis = normalize_axis(kernel.operator.axis, len(shape))
    outer, row = math.prod(shape[:axis]), math.prod(shape[axis:])
    lines, start = [], 0
    for position, name in enumerate(kernel.names):
        part = size_of(kernel.input(position)) // outer if outer else 0
        copy = f"y[{at(['i', 'j'], [row, 1], start)}] = {name}[{at(['i', 'j'], [part, 1])}];"
        lines += nest([("i", outer), ("j", part)], [copy])
        start += part
    return lines


def gather(kernel: CKernel) -> Lines:
    """Return a Gather. An index out of range, which is an error elsewhere, reads the nearest slice: C has no errors."""
    operator, shape = kernel.operator, shape_of(kernel.x)
    axis = normalize_axis(operator.axis, len(shape))
    outer, size, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    count = size_of(kernel.input(1))
    read = at(["i", "k", "l"], [size * inner, inner, 1]).replace("k", "(int)k")
    body = [
        "int64_t k = indices[j] < 0 ? indices[j] + " + f"{size} : indices[j];",
        f"k = clamp(k, 0, {max(size - 1, 0)});",
        *loop("l", inner, [f"y[{at(['i', 'j', 'l'], [count * inner, inner, 1])}] = x[{read}];"]),
    ]
    return nest([("i", outer), ("j", count)], body)


def pad(kernel: CKernel) -> Lines:
    """Return a Pad: for each position of y the position in x, -1 outside, from one table for each axis."""
    operator, shape, wide = kernel.operator, shape_of(kernel.x), shape_of(kernel.y)
    rank, names = len(shape), indices(len(shape))
    lines, places, outside = [], [], []
    for axis in range(rank):
        sources = _sources(operator, axis, shape[axis])
        if sources == list(range(wide[axis])):
            places.append(names[axis])
            continue
        lines += table(f"from{axis}", sources, "int32")
        places.append(f"from{axis}[{names[axis]}]")
        outside += [f"{places[-1]} < 0"] if min(sources, default=0) < 0 else []
    read = f"x[{at(places, strides_of(shape))}]"
    fill = number(operator.value, kernel.y.element)
    value = f"{' || '.join(outside)} ? {fill} : {read}" if outside else read
    target = at(names, strides_of(wide))
    return [*lines, *nest(list(zip(names, wide, strict=True)), [f"y[{target}] = {value};"])]


def _sources(operator: Pad, axis: int, size: int) -> list[int]:
    half = len(operator.pads) // 2
    alone = Pad((operator.pads[axis], operator.pads[half + axis]), operator.mode, -1)
    return alone.evaluate(np.arange(size, dtype=np.int64)).tolist()
