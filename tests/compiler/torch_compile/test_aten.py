"""Rules of ATen's operators where torch and ONNX differ: the results, and the errors, are torch's."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

NAN, INF = math.nan, math.inf
FLOATS = torch.tensor([NAN, INF, -INF, -0.0, 0.0, -2.5, -0.5, 0.5, 1.0, 1.0, 30.0, 1e-30])
INTEGERS = torch.tensor([-100, -3, -1, 0, 1, 1, 2, 100, 2**31 - 1, -(2**31)], dtype=torch.int32)
MATRIX = torch.linspace(-2, 3, 12).reshape(3, 4)


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
        return
    tolerance = 1e-12 if expected.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("exponent", [2, 0.5, -0.5, 3, -1, NAN, INF])
def test_powers(exponent):
    check(lambda x: x**exponent, FLOATS)


@pytest.mark.parametrize("limits", [(NAN, 1), (0, NAN), (2, -1), (-INF, INF), (None, 1)], ids=str)
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


DOUBLES = {
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "selu": functional.selu,
    "softplus": functional.softplus,
    "gelu": functional.gelu,
    "addmm": lambda x: torch.addmm(x[:, :3], x, x.T, beta=0.3, alpha=0.7),
    "layer_norm": lambda x: functional.layer_norm(x, (4,)),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "batch_norm": lambda x: functional.batch_norm(x, x[0], x[1] ** 2),
    "conv2d": lambda x: functional.conv2d(x[None, None], x[None, None, :2, :2]),
}


@pytest.mark.parametrize("name", DOUBLES)
def test_double_precision_is_kept(name):
    check(DOUBLES[name], MATRIX.double() * 10)


@pytest.mark.parametrize("beta", [0, 0.5])
def test_what_a_factor_of_zero_drops(beta):
    check(lambda c, x: torch.addmm(c, x, x.T, beta=beta), torch.full((3, 3), NAN), MATRIX)


@pytest.mark.parametrize("start_end_step", [(0, 10, 2.5), (0.5, 5, 1), (5, -3, -2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
def test_ranges(start_end_step, dtype):
    check(lambda x: torch.arange(*start_end_step, dtype=dtype) + x.sum(), MATRIX)


def test_a_tensor_without_axes_is_permuted():
    check(lambda x: x.sum().permute(()) * 2, MATRIX)


@pytest.mark.parametrize("seed", range(4))
def test_places_of_nearest_neighbours(seed):
    generator = np.random.default_rng(seed)
    height, width, out_height, out_width = (int(n) for n in generator.integers(1, 90, 4))
    x = torch.arange(height * width, dtype=torch.float32).reshape(1, 1, height, width)
    check(lambda x: functional.interpolate(x, size=(out_height, out_width)), x)
    check(lambda x: functional.interpolate(x, scale_factor=(out_height / height, 2.3)), x)
    check(
        lambda x: functional.interpolate(x, size=(75, 3 * width)), torch.arange(33.0 * width).reshape(1, 1, 33, width)
    )
