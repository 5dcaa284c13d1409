"""The sliced convolution: correct for every legal slicing, with an error for the others.

Elements are small integers, so float32 sums are exact in any order and results must be equal.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.dataflow.sliced.sliced import Sliced, sliced_problem
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import Caches, declared
from mlhood.dataflow.slicing.problem import ORDERS, Slicing, counts
from mlhood.errors import SlicingError
from mlhood.kernels.codegen.target import available
from mlhood.kernels.geometry import geometry

NO_LIMITS = Caches((None, None, None))


def integers(shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def sliced(x, w, bias=None, stride=1, padding=0, *, slicing=None, caches=NO_LIMITS):
    return Sliced(geometry(x.shape, w.shape, stride, padding), w, bias, slicing, caches)(x)


def oracle(x, w, bias=None, stride=1, padding=0):
    top, left, bottom, right = padding if isinstance(padding, tuple) else (padding,) * 4
    padded = torch.nn.functional.pad(torch.from_numpy(np.ascontiguousarray(x)), (left, right, top, bottom))
    offsets = None if bias is None else torch.from_numpy(bias)
    return torch.nn.functional.conv2d(padded, torch.from_numpy(w), offsets, stride).numpy()


@st.composite
def cases(draw):
    """A convolution, a processor, and any slicing of it."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    # few widths and filter counts: each register tile is compiled once
    high, wide = draw(st.integers(kernel[0], 12)), draw(st.sampled_from([3, 8, 19, 40]))
    x = integers((draw(st.integers(1, 2)), draw(st.integers(1, 7)), high, wide), 1)
    w = integers((draw(st.sampled_from([1, 5, 16, 70])), x.shape[1], *kernel), 2)
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 2)))
    padding = draw(st.sampled_from([0, 1, (0, 2, 1, 0)]))
    target = draw(st.sampled_from(available()))
    problem = sliced_problem(geometry(x.shape, w.shape, stride, padding), target)
    order = draw(st.sampled_from(ORDERS))
    limits = (x.shape[1], *counts(problem, order))
    slicing = Slicing(order, *(draw(st.integers(1, limit)) for limit in limits))
    return x, w, stride, padding, target, slicing


@given(cases(), st.booleans(), st.sampled_from([1, 3]))
@settings(max_examples=100)
def test_every_slicing_gives_the_convolution(case, biased, threads):
    x, w, stride, padding, target, slicing = case
    bias = integers(w.shape[:1], 3) if biased else None
    g = geometry(x.shape, w.shape, stride, padding)
    y = Sliced(g, w, bias, slicing, NO_LIMITS, target)(x, threads=threads)
    np.testing.assert_array_equal(y, oracle(x, w, bias, stride, padding))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("caches", ["4KiB,16KiB,64KiB", "16KiB,64KiB,128KiB", "32KiB,1MiB,4MiB"])
def test_the_choice_of_the_analysis_for_small_caches_is_correct(order, caches):
    x, w, bias = integers((1, 24, 30, 30)), integers((70, 24, 3, 3), 2), integers(70, 3)
    problem = sliced_problem(geometry(x.shape, w.shape, 1, 1))
    slicing, _ = analyse(problem, declared(caches, fill=1.0)).candidates[order]
    y = sliced(x, w, bias, padding=1, slicing=slicing, caches=declared(caches, fill=1.0))
    np.testing.assert_array_equal(y, oracle(x, w, bias, padding=1))


def test_the_analysis_chooses_by_default():
    x, w = integers((2, 9, 17, 23)), integers((33, 9, 3, 2), 2)
    y = sliced(x, w, stride=2, padding=(1, 0), caches=declared("8KiB,64KiB,1MiB"))
    np.testing.assert_array_equal(y, oracle(x, w, None, 2, (1, 0, 1, 0)))


def test_strided_inputs():
    x, w = integers((1, 6, 20, 20))[:, ::2, ::2, 1::3], integers((5, 6, 2, 2), 2)[:, ::2]
    y = sliced(x, w)
    np.testing.assert_array_equal(y, oracle(x, np.ascontiguousarray(w)))


def test_rounding_stays_close_to_torch():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 64, 28, 28), np.float32), rng.standard_normal((64, 64, 3, 3), np.float32)
    y = sliced(x, w, padding=1, slicing=Slicing("WS", 5, 2, 2))
    np.testing.assert_allclose(y, oracle(x, w, padding=1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("level", "tiles"), [("L1", (24, 1, 1)), ("L2", (1, 3, 1)), ("L3", (1, 1, 3))])
def test_the_error_of_an_illegal_slicing_names_the_cache(level, tiles, order):
    x, w = integers((1, 24, 60, 60)), integers((512, 24, 3, 3), 2)
    problem = sliced_problem(geometry(x.shape, w.shape))
    least = 36 * (problem.window + problem.filter_tile) + problem.output_bytes  # one channel of each tile
    sizes = {"L1": (least, 10**6, 10**9), "L2": (least, least, 10**9), "L3": (least, least, least)}[level]
    with pytest.raises(SlicingError, match=f"do not fit into {level}") as caught:
        sliced(x, w, slicing=Slicing(order, *tiles), caches=Caches(sizes, 1.0))
    assert f"{level} needs" in str(caught.value)


def test_an_invalid_convolution_is_rejected():
    with pytest.raises(SlicingError, match="grouped convolutions"):
        Sliced(geometry((1, 4, 5, 5), (4, 1, 3, 3), groups=4), integers((4, 1, 3, 3)))
    g, w = geometry((1, 2, 5, 5), (4, 2, 3, 3)), integers((4, 2, 3, 3))
    for arrays in ((w[:3], None), (w.astype(int), None), (w, integers(5))):
        with pytest.raises(SlicingError, match="does not match the convolution"):
            Sliced(g, *arrays, caches=NO_LIMITS)
    right = Sliced(g, w, caches=NO_LIMITS)
    for other in (integers((1, 2, 5, 6)), integers((1, 2, 5, 5)).astype(np.float64)):
        with pytest.raises(SlicingError, match="x does not match"):
            right(other)
