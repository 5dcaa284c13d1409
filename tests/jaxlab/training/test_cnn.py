"""The digits' network: the same with JAX, without it and in torch."""

import jax
import numpy as np
import pytest
import torch

from mlhood.errors import XlaError
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.training import cnn


def images(count, size=32):
    return np.random.default_rng(0).standard_normal((count, 1, size, size), np.float32)


@pytest.mark.parametrize("size", [32, 20])
def test_logits_are_the_same_with_jax_without_it_and_in_torch(size):
    x, params = images(3, size), cnn.init(1, size=size, classes=7)
    arrays = {name: np.asarray(value) for name, value in params.items()}
    tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
    y = torch.from_numpy(x)
    for name in cnn.CONVOLUTIONS:
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        y = torch.relu(torch.nn.functional.conv2d(y, weight, bias, stride=2, padding=1))
    expected = torch.nn.functional.linear(y.flatten(1), tensors["fc.weight"], tensors["fc.bias"])
    assert expected.shape == (3, 7)
    for got in (jax.jit(cnn.logits)(params, x), cnn.logits(arrays, x, no_jax)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_beginning_is_its_seeds_and_keeps_the_variance():
    one, same, other = cnn.init(3), cnn.init(3), cnn.init(4)
    assert sum(value.size for value in one.values()) == 19_178
    assert all((one[name] == same[name]).all() for name in one)
    weights = [name for name in one if name.endswith("weight")]
    assert not any((one[name] == other[name]).any() for name in weights)
    for name in weights[1:]:  # the first has too few numbers to tell
        np.testing.assert_allclose(np.var(one[name]), 2 / np.prod(one[name].shape[1:]), rtol=0.15)
    assert not any(np.any(one[name]) for name in one.keys() - weights)


@pytest.mark.parametrize("shape", [(2, 1, 64, 64), (2, 3, 32, 32), (1, 32, 32)])
def test_images_that_do_not_fit_are_refused(shape):
    with pytest.raises(XlaError, match="does not take these images") as refused:
        cnn.logits(cnn.init(), np.zeros(shape, np.float32))
    assert "[N, 1, 32, 32]" in str(refused.value)
