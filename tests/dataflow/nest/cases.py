"""Small nests under random schedules, and their semantics, computed independently of the package."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from mlhood.dataflow.nest import Nest, gemm, nest

EXTENT = st.integers(1, 5)


@st.composite
def nests(draw) -> Nest:
    """Products, multiple reductions, overlapping windows, a reversed index, a loop in two axes."""
    a, b, c = draw(EXTENT), draw(EXTENT), draw(EXTENT)
    kernel, stride = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    products = [
        lambda: gemm(a, b, c),
        lambda: nest("y[i] += x[2*i + k] * w[k]", i=a, k=c),
        lambda: nest("y[i, j] += x[j] * w[i]", j=a, i=b),
        lambda: nest("y[i] += x[5 - i, k]", {"x": (6, 7)}, k=c, i=a),
        lambda: nest("y[i] += x[i, i + k] * w[k]", i=a, k=c),
        lambda: nest("y[i + j] += x[i] * w[j]", i=a, j=b),
        lambda: conv2d((2, 4, 5), (2, 2, kernel, kernel), stride),
    ]
    return draw(st.sampled_from(products))()


def conv2d(x: tuple[int, int, int], w: tuple[int, int, int, int], stride: int = 1) -> Nest:
    """The convolution of an image [C, H, W] with filters [F, C, KH, KW]."""
    (channels, *sizes), (filters, _, *kernel) = x, w
    oh, ow = ((size - k) // stride + 1 for size, k in zip(sizes, kernel, strict=True))
    statement = f"y[f, oh, ow] += x[c, {stride}*oh + kh, {stride}*ow + kw] * w[f, c, kh, kw]"
    return nest(statement, {"x": x}, f=filters, oh=oh, ow=ow, c=channels, kh=kernel[0], kw=kernel[1])


@st.composite
def scheduled(draw) -> tuple[Nest, Nest]:
    """A nest before and after a few steps."""
    original = result = draw(nests())
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(result.names))
        result = result.split(name, draw(st.integers(1, result.extents[name])), "guard")
    return original, result.reorder(*draw(st.permutations(result.names)))


def iterations(nest: Nest) -> Iterator[dict[str, int]]:
    """Yield the loops' values in order: every combination within the guards."""
    for values in itertools.product(*(range(loop.extent) for loop in nest.loops)):
        point = dict(zip(nest.names, values, strict=True))
        if all(guard.expression.evaluate(point) < guard.bound for guard in nest.guards):
            yield point


def integers(nest: Nest, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs whose sums are exact in float32, in any order."""
    rng = np.random.default_rng(seed)
    return {access.array: rng.integers(-8, 9, access.shape).astype(np.float32) for access in nest.inputs}


def reference(original: Nest, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The output by definition: each point of the domain once."""
    output = np.zeros(original.output.shape, np.float32)
    for point in iterations(original):
        factors = [arrays[x.array][tuple(axis.evaluate(point) for axis in x.index)] for x in original.inputs]
        output[tuple(axis.evaluate(point) for axis in original.output.index)] += np.prod(factors)
    return output
