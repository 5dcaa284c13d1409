"""Norms of windows, and windows that are put back, by the operators that pool, and write at indices."""

from __future__ import annotations

import math

import numpy as np

from mlhood.compiler.hir.lengths import Length, add_dims, maximum, product, subtract_dims
from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.arithmetic import Mul, Pow
from mlhood.compiler.operators.indexing import ScatterElements, require_equal
from mlhood.compiler.operators.movement import Expand
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool
from mlhood.compiler.operators.shape import Reshape
from mlhood.compiler.operators.windows import Window, read_window


def import_lp_pool(source: OnnxNode) -> Value:
    """LpPool: the p-th root of the sum of |x|^p in each window, which is their mean times their number."""
    x, p = source.input(0), source.attribute("p", 2)
    require(p >= 1, "the norm must be positive", got=p)
    window = read_window(source, x.type, source.attribute("kernel_shape", ()))
    afters = []
    axes = zip(
        x.type.shape[2:], window.output(x.type.shape[2:]), window.strides, window.spans, window.ends, strict=True
    )
    for size, count, stride, span, (before, after) in axes:  # the last window may reach past the pads
        reach = add_dims(product((add_dims(count, -1), stride)), span)
        afters.append(maximum(after, subtract_dims(reach, add_dims(size, before))))
    befores = window.pads[: len(window.kernel)]
    powers = source.add(Pow(), source.call("Abs", x), source.constant(np.array(p, x.type.dtype)))
    padded = source.add(Pad((0, 0, *befores, 0, 0, *afters)), powers)
    pool = AveragePool(window.kernel, window.strides, (0, 0) * len(window.kernel), window.dilations)
    elements = source.constant(np.array(math.prod(window.kernel), x.type.dtype))
    total = source.add(Mul(), source.add(pool, padded), elements)
    return source.add(Pow(), total, source.constant(np.array(1 / p, x.type.dtype)))


def import_max_unpool(source: OnnxNode) -> Value:
    """MaxUnpool: the elements of x at their flat indices in zeros of the pooled tensor's shape, padded to another."""
    x, kernel = source.input(0), source.attribute("kernel_shape", ())
    strides, pads = source.attribute("strides", (1,) * len(kernel)), source.attribute("pads", (0, 0) * len(kernel))
    window = Window(kernel, strides, pads, (1,) * len(kernel))
    window.check(x.type)
    axes = zip(x.type.shape[2:], kernel, strides, window.ends, strict=True)
    spatial = [add_dims(product((size, stride)), k - stride - sum(ends)) for size, k, stride, ends in axes]
    shape = tuple(map(Length.of, (*x.type.shape[:2], *spatial)))
    zeros = source.add(Expand((product(shape),)), source.constant(np.zeros((), x.type.dtype)))
    flat = (source.add(Reshape((-1,)), value) for value in (source.input(1), x))
    y = source.add(Reshape(shape), source.add(ScatterElements(), zeros, *flat))
    if not source.has(2):
        return y
    wanted = source.integers(2)
    require(len(wanted) == len(shape), "the shape needs a length for each axis", got=wanted)
    return source.add(Pad((*(0,) * len(shape), *map(subtract_dims, wanted, shape))), y)


def import_col2im(source: OnnxNode) -> Value:
    """Col2Im: the sum of what overlapping windows [N, C * elements, windows] have at each place of an image."""
    x, image, kernel = source.input(0), source.integers(1), source.integers(2)
    ones = (1,) * len(image)
    pads = source.attribute("pads", (0, 0) * len(image))
    window = Window(kernel, source.attribute("strides", ones), pads, source.attribute("dilations", ones))
    require(x.type.rank == 3, "the windows must have three axes", expected="[N, C * elements, windows]", got=x.type)
    counts, size = tuple(map(int, window.output(image))), math.prod(kernel)
    require_equal("the windows do not cover the image", (math.prod(counts),), x.type.shape[2:])
    channels = x.type.shape[1]
    valid = isinstance(channels, int) and channels % size == 0
    require(valid, "the channels must be whole windows", expected=f"of {size}", got=channels)
    padded = [length + before + after for length, (before, after) in zip(image, window.ends, strict=True)]
    source.spend(size * math.prod(counts))
    grid, axes = np.indices((*kernel, *counts)), len(image)
    places = [grid[i] * window.dilations[i] + grid[axes + i] * window.strides[i] for i in range(axes)]
    index = source.constant(np.ravel_multi_index(places, padded).ravel())
    windows = source.add(Reshape((0, int(channels) // size, -1)), x)
    batch, planes, elements = map(Length.of, windows.type.shape)
    zeros = source.constant(np.zeros((), x.type.dtype))
    zeros = source.add(Expand((batch, planes, math.prod(padded))), zeros)
    index = source.add(Expand((batch, planes, elements)), index)
    y = source.add(ScatterElements(2, "add"), zeros, index, windows)
    ends = [[-end for end in ends] for ends in zip(*window.ends, strict=True)]
    return source.add(Pad((0, 0, *ends[0], 0, 0, *ends[1])), source.add(Reshape((0, 0, *padded)), y))


RULES = {"Col2Im": import_col2im, "LpPool": import_lp_pool, "MaxUnpool": import_max_unpool}
