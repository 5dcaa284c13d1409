"""Both forms of every operator against torch's: odd sizes, strides and paddings, alone and compiled."""

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
from mlhood.jaxlab.tables import OPERATORS

F = torch.nn.functional
FORMS = {"NumPy": no_jax, "JAX": with_jax}
each_form = pytest.mark.parametrize("ops", FORMS.values(), ids=FORMS)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def is_close(got, expected):
    got = np.asarray(got)
    assert (got.dtype, got.shape) == (np.float32, tuple(expected.shape))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def torchs(function, *arrays, **options):
    tensors = (None if array is None else torch.from_numpy(array) for array in arrays)
    return function(*tensors, **options).numpy()


@each_form
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("height", "width", "kernel", "stride", "padding"),
    [(9, 11, (3, 3), 1, 1), (7, 10, (1, 1), 2, 0), (13, 5, (5, 2), (1, 2), (2, 1)), (8, 8, (8, 8), 3, 0),
     (6, 7, (3, 3), 2, 1), (1, 1, (3, 3), 1, 1), (15, 17, (7, 7), 2, 3)],
)  # fmt: skip
def test_the_convolution_is_torchs(ops, height, width, kernel, stride, padding, bias):
    x, w, b = drawn(2, 5, height, width), drawn(6, 5, *kernel, seed=1), drawn(6, seed=2) if bias else None
    is_close(ops.conv2d(x, w, b, stride, padding), torchs(F.conv2d, x, w, b, stride=stride, padding=padding))


@each_form
def test_the_border_of_a_convolution_may_differ_from_side_to_side(ops):
    x, w = drawn(1, 2, 5, 6), drawn(3, 2, 3, 2, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 3)))
    is_close(ops.conv2d(x, w, None, 2, (1, 2, 0, 3)), torchs(F.conv2d, padded, w, stride=2))


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(st.integers(3, 12), st.integers(3, 12)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 4),
    padding=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_the_convolution_without_jax_is_torchs_for_any_sizes(size, kernel, stride, padding, seed):
    x, w = drawn(1, 2, *size, seed=seed), drawn(3, 2, kernel, kernel, seed=seed)
    expected = torchs(F.conv2d, x, w, stride=stride, padding=padding)
    is_close(no_jax.conv2d(x, w, None, stride, padding), expected)


@each_form
@pytest.mark.parametrize(
    ("height", "width", "kernel", "stride", "padding"),
    [(9, 12, 3, 2, 1), (7, 7, 2, 2, 0), (5, 8, 3, 1, 1), (11, 6, 5, 3, 2), (4, 4, 4, 1, 0), (3, 3, 1, 2, 0)],
)
def test_the_pooling_is_torchs_for_negative_numbers_too(ops, height, width, kernel, stride, padding):
    x = drawn(2, 3, height, width) - 5
    expected = torchs(F.max_pool2d, x, kernel_size=kernel, stride=stride, padding=padding)
    is_close(ops.max_pool(x, kernel, stride, padding), expected)


@each_form
def test_the_normalisation_is_torchs(ops):
    x, mean, weight, bias = drawn(3, 4, 5, 6), drawn(4, seed=1), drawn(4, seed=2), drawn(4, seed=3)
    var = np.array([1e-6, 0.5, 1, 30], np.float32)
    expected = torchs(F.batch_norm, x, mean, var, weight, bias, eps=1e-5)
    is_close(ops.batch_norm(x, mean, var, weight, bias), expected)
    expected = torchs(F.batch_norm, x, mean, var, weight, bias, eps=0.1)
    is_close(ops.batch_norm(x, mean, var, weight, bias, 0.1), expected)


@each_form
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5)])
def test_what_works_on_any_shape(ops, shape):
    x, y = drawn(*shape), drawn(*shape, seed=1)
    is_close(ops.relu(x), torchs(F.relu, x))
    is_close(ops.add(x, y), x + y)
    is_close(ops.softmax(x), torchs(F.softmax, x, dim=-1))


@each_form
def test_softmax_of_large_numbers_is_finite(ops):
    x = np.array([[1000, 999, -1000], [-2000, -2000, -2000]], np.float32)
    is_close(ops.softmax(x), torchs(F.softmax, x, dim=-1))


@each_form
def test_the_head_is_torchs(ops):
    x, w, bias = drawn(3, 8, 5, 7), drawn(10, 8, seed=1), drawn(10, seed=2)
    features = torchs(torch.mean, x, dim=(2, 3))
    is_close(ops.global_average_pool(x), features)
    is_close(ops.dense(features, w, bias), torchs(F.linear, features, w, bias))


@each_form
def test_no_argument_is_written_to(ops):
    x, w, norm = drawn(1, 4, 6, 6), drawn(4, 4, 1, 1), [np.abs(drawn(4, seed=i)) for i in range(4)]
    arrays = [x, w, *norm]
    before = [array.copy() for array in arrays]
    for y in (ops.conv2d(x, w, norm[0]), ops.batch_norm(x, *norm), ops.relu(x), ops.max_pool(x, 1, 1, 0),
              ops.add(x, x), ops.global_average_pool(x), ops.softmax(x)):  # fmt: skip
        np.asarray(y)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@each_form
def test_what_does_not_fit_is_refused(ops):
    with pytest.raises(KernelError):
        ops.conv2d(drawn(1, 3, 4, 4), drawn(2, 4, 1, 1))
    with pytest.raises(KernelError):
        ops.max_pool(drawn(1, 3, 2, 2), 5, 1, 0)


def test_compiled_operators_are_what_they_are_alone():
    x, w, norm = drawn(1, 4, 9, 7), drawn(4, 4, 3, 3), [np.abs(drawn(4, seed=i)) for i in range(4)]

    def all_of_them(x):
        y = with_jax.max_pool(with_jax.relu(with_jax.batch_norm(with_jax.conv2d(x, w, norm[0], 2, 1), *norm)))
        y = with_jax.global_average_pool(with_jax.add(y, y))
        return with_jax.softmax(with_jax.dense(y, norm[0] * np.eye(4, dtype=np.float32), norm[1]))

    is_close(jax.jit(all_of_them)(x), np.asarray(all_of_them(x)))


def test_both_have_the_same_functions_with_the_same_arguments():
    import inspect

    def signatures(ops):
        functions = {name: one for name, one in vars(ops).items() if inspect.isfunction(one) and name[0] != "_"}
        return {
            name: [(one.name, one.default) for one in inspect.signature(function).parameters.values()]
            for name, function in functions.items()
            if function.__module__ == ops.__name__
        }

    assert signatures(no_jax) == signatures(with_jax)
    assert len(signatures(no_jax)) == len(OPERATORS)


def test_without_jax_means_that_jax_is_not_even_loaded():
    code = "import sys; from mlhood.jaxlab.operators import network, no_jax; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
