"""Small nests under random schedules, and what they mean, told without the nest's own machinery."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from mlhood.dataflow.nest import Nest, NestError, conv2d, gemm, nest

EXTENT = st.integers(1, 5)


@st.composite
def nests(draw) -> Nest:
    """Products, sums of sums, overlapping windows, an index that runs backwards, a loop in two axes."""
    a, b, c = draw(EXTENT), draw(EXTENT), draw(EXTENT)
    kernel, stride = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    makers = [
        lambda: gemm(a, b, c),
        lambda: nest("y[i] += x[2*i + k] * w[k]", i=a, k=c),
        lambda: nest("y[i, j] += x[j] * w[i]", j=a, i=b),
        lambda: nest("y[i] += x[5 - i, k]", {"x": (6, 7)}, k=c, i=a),
        lambda: nest("y[i] += x[i, i + k] * w[k]", i=a, k=c),
        lambda: nest("y[i + j] += x[i] * w[j]", i=a, j=b),
        lambda: conv2d((1, 2, 4, 5), (2, 2, kernel, kernel), stride),
    ]
    return draw(st.sampled_from(makers))()


@st.composite
def scheduled(draw, *, packing: bool = True, vectors: bool = False) -> tuple[Nest, Nest]:
    """A nest as it was, and after a few steps; a step that is refused is left out."""
    original = made = draw(nests())
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(made.names))
        made = made.split(name, draw(st.integers(1, made.extents[name])), "guard")
    made = made.reorder(*draw(st.permutations(made.names)))
    for access in made.inputs if packing else ():
        made = _perhaps(draw, made, "pack", access.array, draw(st.sampled_from([None, *made.names])))
    made = _perhaps(draw, made, "unroll", draw(st.sampled_from(made.names)))
    return original, _perhaps(draw, made, "vectorise", made.names[-1]) if vectors else made


def _perhaps(draw, made: Nest, step: str, *arguments) -> Nest:
    if not draw(st.booleans()):
        return made
    try:
        return getattr(made, step)(*arguments)
    except NestError:
        return made


def rounds(made: Nest) -> Iterator[dict[str, int]]:
    """All values of the loops in order: every combination that no guard forbids."""
    for values in itertools.product(*(range(loop.extent) for loop in made.loops)):
        point = dict(zip(made.names, values, strict=True))
        if all(guard.sum.at(point) < guard.bound for guard in made.guards):
            yield point


def integers(made: Nest, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs whose sums float32 holds exactly, in whatever order."""
    rng = np.random.default_rng(seed)
    return {one.array: rng.integers(-8, 9, one.shape).astype(np.float32) for one in made.inputs}


def meaning(original: Nest, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The output by the definition: each point of the domain once."""
    output = np.zeros(original.output.shape, np.float32)
    for point in rounds(original):
        factors = [arrays[one.array][tuple(axis.at(point) for axis in one.index)] for one in original.inputs]
        output[tuple(axis.at(point) for axis in original.output.index)] += np.prod(factors)
    return output
