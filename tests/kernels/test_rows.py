"""Softmax, layer normalisation and reductions of rows against NumPy in float64 and torch."""

import numpy as np
import pytest
import torch

from mlhood.kernels import rows
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64
from mlhood.kernels.native import run
from tests.kernels.guards import guarded, run_guarded

SHAPES = [(3, 1), (2, 7), (5, 8), (3, 31), (4, 49), (70, 128), (2, 1000), (1, 10_007), (0, 5), (3000, 3)]
REFERENCES = {
    "Max": lambda x: x.max(1),
    "Mean": lambda x: x.mean(1),
    "Min": lambda x: x.min(1),
    "Sum": lambda x: x.sum(1),
}
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def values(shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@shapes
@pytest.mark.parametrize("log", [False, True])
def test_softmax_is_that_of_torch(shape, log, target):
    x = values(shape) * 8
    function = torch.log_softmax if log else torch.softmax
    expected = function(torch.from_numpy(x).double(), 1).numpy()
    y = run_guarded(rows.softmax(*shape, log=log, target=target), shape, x=x)
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=2e-6 if log else 1e-12)


@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_infinities_is_that_of_numpy(log, target):
    x = values((6, 21))
    x[0], x[1, 4], x[2, 20], x[3, 3], x[4], x[5] = -np.inf, -np.inf, np.inf, np.nan, 3e38, -3e38
    with np.errstate(all="ignore"):
        shifted = x.astype(np.float64) - x.max(1, keepdims=True)
        expected = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    y = run_guarded(rows.softmax(6, 21, log=log, target=target), x.shape, x=x)
    np.testing.assert_allclose(y, expected if log else np.exp(expected), rtol=2e-6)


@shapes
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_that_of_torch(shape, bias, target):
    x, factor, offset = values(shape) + 3, values(shape[1]) + 1, values(shape[1])
    parameters = {"scale": factor} | ({"bias": offset} if bias else {})
    expected = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), shape[1:], eps=1e-3).numpy()
    expected = expected * factor + (offset if bias else 0)
    call = rows.layer_norm(*shape, epsilon=1e-3, bias=bias, target=target)
    np.testing.assert_allclose(run_guarded(call, shape, x=x, **parameters), expected, rtol=1e-4, atol=2e-5)


def test_a_constant_row_is_normalised_to_the_bias(target):
    call = rows.layer_norm(2, 13, target=target)
    bias = values(13)
    y = run_guarded(call, (2, 13), x=np.full((2, 13), 0.1, np.float32), scale=bias, bias=bias)
    np.testing.assert_allclose(y, np.broadcast_to(bias, (2, 13)), atol=1e-4)


@shapes
@pytest.mark.parametrize("name", rows.REDUCTIONS)
def test_reductions_are_those_of_numpy(name, shape, target):
    x = values(shape)
    expected = REFERENCES[name](x.astype(np.float64))
    y = run_guarded(rows.reduce(name, *shape, target=target), shape[:1], x=x)
    # sums are accurate relative to the sum of the magnitudes
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=1e-6 * max(1, shape[1] ** 0.5 if name == "Sum" else 1))


@pytest.mark.parametrize("name", rows.REDUCTIONS)
def test_nan_and_infinities_propagate_from_every_position(name, target):
    length = 4 * target.lanes + target.lanes + 3
    x = np.ones((2 * length, length), np.float32)
    x[range(length), range(length)] = np.nan
    x[range(length, 2 * length), range(length)] = -np.inf
    y = run_guarded(rows.reduce(name, *x.shape, target=target), x.shape[:1], x=x)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y, REFERENCES[name](x))


def test_reductions_of_nothing_are_neutral(target):
    neutral = {"Max": -np.inf, "Mean": np.nan, "Min": np.inf}
    for name in rows.REDUCTIONS:
        y = run_guarded(rows.reduce(name, 3, 0, target), (3,), x=np.empty((3, 0), np.float32))
        np.testing.assert_array_equal(y, np.full(3, neutral.get(name, 0)))


def test_the_result_may_take_the_place_of_the_input(target):
    x = values((3, 77))
    softmax, layer_norm = rows.softmax(3, 77, target=target), rows.layer_norm(3, 77, bias=False, target=target)
    for call, more in ((softmax, {}), (layer_norm, {"scale": x[0]})):
        _, inside = guarded(x)
        run(call, 2, x=inside, out=inside, **more)
        np.testing.assert_array_equal(inside, run_guarded(call, x.shape, x=x, **more))


def test_softmax_for_arm_is_assembled():
    text = jit.compile_ir(rows.build_softmax(AARCH64, True), AARCH64, assembly=True)
    assert text.count("fmla") >= 20
    assert "\tbl\t" not in text
