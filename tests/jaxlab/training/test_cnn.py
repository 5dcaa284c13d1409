"""The digits' network: JAX, NumPy and torch agree."""

import jax
import numpy as np
import pytest
import torch

from mlhood.errors import KernelError
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.training import cnn


def test_logits_agree_with_jax_without_it_and_in_torch():
    x, params = np.random.default_rng(0).standard_normal((3, 1, 32, 32), np.float32), cnn.init(1)
    arrays = {name: np.asarray(value) for name, value in params.items()}
    tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
    y = torch.from_numpy(x)
    for name in cnn.CONVOLUTIONS:
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        y = torch.relu(torch.nn.functional.conv2d(y, weight, bias, stride=2, padding=1))
    expected = torch.nn.functional.linear(y.flatten(1), tensors["fc.weight"], tensors["fc.bias"])
    assert expected.shape == (3, 10)
    for got in (jax.jit(cnn.logits)(params, x), cnn.logits(arrays, x, no_jax)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_initial_weights_depend_on_the_seed_and_preserve_the_variance():
    params, same, other = cnn.init(3), cnn.init(3), cnn.init(4)
    assert sum(value.size for value in params.values()) == 19_178
    assert all((params[name] == same[name]).all() for name in params)
    weights = [name for name in params if name.endswith("weight")]
    assert not any((params[name] == other[name]).any() for name in weights)
    for name in weights[1:]:  # the first has too few elements for a good estimate
        np.testing.assert_allclose(np.var(params[name]), 2 / np.prod(params[name].shape[1:]), rtol=0.15)
    assert not any(np.any(params[name]) for name in params.keys() - weights)


@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (1, 32, 32)])
def test_images_of_another_shape_are_rejected(shape):
    with pytest.raises(KernelError):
        cnn.logits(cnn.init(), np.zeros(shape, np.float32))
