"""Both implementations of every operator against torch: odd sizes, strides and paddings, eager and compiled."""

import subprocess
import sys

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.errors import KernelError
from mlhood.jaxlab.operators import no_jax, with_jax
from mlhood.jaxlab.operators.cases import OPERATORS

F = torch.nn.functional
IMPLEMENTATIONS = {"NumPy": no_jax, "JAX": with_jax}
each_implementation = pytest.mark.parametrize("ops", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def assert_close(got, expected):
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (np.float32, tuple(expected.shape))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def in_torch(function, *arrays, **options):
    tensors = (None if array is None else torch.from_numpy(array) for array in arrays)
    return function(*tensors, **options).numpy()


@each_implementation
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("height", "width", "kernel", "stride", "padding"),
    [
        (9, 11, (3, 3), 1, 1),
        (7, 10, (1, 1), 2, 0),
        (13, 5, (5, 2), (1, 2), (2, 1)),
        (8, 8, (8, 8), 3, 0),
        (6, 7, (3, 3), 2, 1),
        (1, 1, (3, 3), 1, 1),
        (15, 17, (7, 7), 2, 3),
    ],
)
def test_the_convolution_matches_torch(ops, height, width, kernel, stride, padding, bias):
    x, w, b = normal(2, 5, height, width), normal(6, 5, *kernel, seed=1), normal(6, seed=2) if bias else None
    assert_close(ops.conv2d(x, w, b, stride, padding), in_torch(F.conv2d, x, w, b, stride=stride, padding=padding))


@each_implementation
def test_the_padding_of_a_convolution_may_be_asymmetric(ops):
    x, w = normal(1, 2, 5, 6), normal(3, 2, 3, 2, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 3)))
    assert_close(ops.conv2d(x, w, None, 2, (1, 2, 0, 3)), in_torch(F.conv2d, padded, w, stride=2))


@settings(max_examples=25)
@given(
    size=st.tuples(st.integers(3, 12), st.integers(3, 12)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_the_convolution_without_jax_matches_torch_for_any_sizes(size, kernel, stride, padding, seed):
    x, w = normal(1, 2, *size, seed=seed), normal(3, 2, kernel, kernel, seed=seed)
    expected = in_torch(F.conv2d, x, w, stride=stride, padding=padding)
    assert_close(no_jax.conv2d(x, w, None, stride, padding), expected)


@each_implementation
@pytest.mark.parametrize(
    ("height", "width", "kernel", "stride", "padding"),
    [(9, 12, 3, 2, 1), (7, 7, 2, 2, 0), (5, 8, 3, 1, 1), (11, 6, 5, 3, 2), (4, 4, 4, 1, 0), (3, 3, 1, 2, 0)],
)
def test_the_pooling_matches_torch_for_negative_numbers_too(ops, height, width, kernel, stride, padding):
    x = normal(2, 3, height, width) - 5
    expected = in_torch(F.max_pool2d, x, kernel_size=kernel, stride=stride, padding=padding)
    assert_close(ops.max_pool(x, kernel, stride, padding), expected)


@each_implementation
def test_batch_normalisation_matches_torch(ops):
    x, mean, weight, bias = normal(3, 4, 5, 6), normal(4, seed=1), normal(4, seed=2), normal(4, seed=3)
    var = np.array([1e-6, 0.5, 1, 30], np.float32)
    expected = in_torch(F.batch_norm, x, mean, var, weight, bias, eps=1e-5)
    assert_close(ops.batch_norm(x, mean, var, weight, bias), expected)
    expected = in_torch(F.batch_norm, x, mean, var, weight, bias, eps=0.1)
    assert_close(ops.batch_norm(x, mean, var, weight, bias, 0.1), expected)


@each_implementation
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5)])
def test_elementwise_operators_and_softmax_accept_any_shape(ops, shape):
    x, y = normal(*shape), normal(*shape, seed=1)
    assert_close(ops.relu(x), in_torch(F.relu, x))
    assert_close(ops.add(x, y), x + y)
    assert_close(ops.softmax(x), in_torch(F.softmax, x, dim=-1))


@each_implementation
def test_softmax_of_large_numbers_is_finite(ops):
    x = np.array([[1000, 999, -1000], [-2000, -2000, -2000]], np.float32)
    assert_close(ops.softmax(x), in_torch(F.softmax, x, dim=-1))


@each_implementation
def test_the_classifier_matches_torch(ops):
    x, w, bias = normal(3, 8, 5, 7), normal(10, 8, seed=1), normal(10, seed=2)
    features = in_torch(torch.mean, x, dim=(2, 3))
    assert_close(ops.global_average_pool(x), features)
    assert_close(ops.dense(features, w, bias), in_torch(F.linear, features, w, bias))


@each_implementation
def test_no_argument_is_modified(ops):
    x, w, norm = normal(1, 4, 6, 6), normal(4, 4, 1, 1), [np.abs(normal(4, seed=i)) for i in range(4)]
    arrays = [x, w, *norm]
    copies = [array.copy() for array in arrays]
    results = ops.conv2d(x, w, norm[0]), ops.batch_norm(x, *norm), ops.relu(x), ops.max_pool(x, 1, 1, 0)
    results += ops.add(x, x), ops.global_average_pool(x), ops.softmax(x)
    jax.block_until_ready(results)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@each_implementation
def test_mismatched_shapes_are_rejected(ops):
    with pytest.raises(KernelError):
        ops.conv2d(normal(1, 3, 4, 4), normal(2, 4, 1, 1))
    with pytest.raises(KernelError):
        ops.max_pool(normal(1, 3, 2, 2), 5, 1, 0)


def test_compiled_operators_match_eager_ones():
    x, w, norm = normal(1, 4, 9, 7), normal(4, 4, 3, 3), [np.abs(normal(4, seed=i)) for i in range(4)]

    def network(x):
        y = with_jax.max_pool(with_jax.relu(with_jax.batch_norm(with_jax.conv2d(x, w, norm[0], 2, 1), *norm)))
        y = with_jax.global_average_pool(with_jax.add(y, y))
        return with_jax.softmax(with_jax.dense(y, norm[0] * np.eye(4, dtype=np.float32), norm[1]))

    assert_close(jax.jit(network)(x), np.asarray(network(x)))


def test_both_implementations_have_the_same_signatures():
    import inspect

    def signatures(ops):
        functions = {name: value for name, value in vars(ops).items() if inspect.isfunction(value) and name[0] != "_"}
        return {
            name: [(parameter.name, parameter.default) for parameter in inspect.signature(function).parameters.values()]
            for name, function in functions.items()
            if function.__module__ == ops.__name__
        }

    assert signatures(no_jax) == signatures(with_jax)
    assert len(signatures(no_jax)) == len(OPERATORS)


def test_the_operators_without_jax_do_not_import_jax():
    code = "import sys; from mlhood.jaxlab.operators import network, no_jax; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
