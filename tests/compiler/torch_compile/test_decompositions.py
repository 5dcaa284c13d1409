"""Arguments for which torch's export differs from torch, or may: the results, and the errors, are torch's."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

NAN, INF = math.nan, math.inf
FLOATS = torch.tensor([NAN, INF, -INF, -0.0, 0.0, -2.5, -0.5, 0.5, 1.0, 1.0, 30.0, 1e-30])
INTEGERS = torch.tensor([-100, -3, -1, 0, 1, 1, 2, 100, 2**31 - 1, -(2**31)], dtype=torch.int32)


def outcome(function, inputs):
    """Return what a function gives, or the type of its error."""
    try:
        return function(*inputs)
    except RuntimeError as error:
        return type(error)


def check(function, *inputs):
    torch._dynamo.reset()
    expected, got = outcome(function, inputs), outcome(torch.compile(function, backend="mlhood"), inputs)
    if isinstance(expected, type):
        assert isinstance(got, type)
    else:
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("exponent", [2, 0.5, -0.5, -1, NAN])
def test_powers(exponent):
    check(lambda x: x**exponent, FLOATS)


@pytest.mark.parametrize("limits", [(NAN, 1), (0, NAN), (2, -1), (None, 1)], ids=str)
def test_limits_of_a_clamp(limits):
    check(lambda x: x.clamp(*limits), FLOATS)


@pytest.mark.parametrize(
    ("x", "number"),
    [(FLOATS, 1e40), (FLOATS, NAN), (INTEGERS, 2**40), (INTEGERS, True)],
    ids=lambda each: str(each)[:9],
)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, number: x + number,
        lambda x, number: number - x,
        lambda x, number: x < number,
        lambda x, number: x.clamp(max=number),
        lambda x, number: x.masked_fill(x > 0, number),
    ],
    ids=["sum", "difference", "comparison", "clamp", "fill"],
)
def test_numbers_that_an_element_type_may_not_have(function, x, number):
    check(lambda x: function(x, number), x)


@pytest.mark.parametrize("start_end_step", [(0, 10, 2.5), (0.5, 5, 1), (5, -3, -2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_ranges(start_end_step, dtype):
    check(lambda x: torch.arange(*start_end_step, dtype=dtype) + x.sum(), INTEGERS)


@pytest.mark.parametrize("seed", range(4))
def test_places_of_nearest_neighbours(seed):
    height, width, *size = map(int, np.random.default_rng(seed).integers(1, 90, 4))
    x = torch.arange(height * width, dtype=torch.float32).reshape(1, 1, height, width)
    check(lambda x: functional.interpolate(x, size=size), x)
    check(lambda x: functional.interpolate(x, scale_factor=(size[0] / height, 2.3)), x)
