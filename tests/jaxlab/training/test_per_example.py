"""Per-example gradients against a loop, the mean and torch's clipping; their jaxpr has no loop."""

import jax
import numpy as np
import pytest
import torch

from mlhood.errors import XlaError
from mlhood.jaxlab.training import cnn
from mlhood.jaxlab.training.per_example import clipped, clipped_mean, norms, per_example
from mlhood.jaxlab.training.train_loop import loss


def batch(count):
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 1, 8, 8), np.float32), rng.integers(0, 10, count).astype(np.int32)


@pytest.fixture(scope="module")
def params():
    return cnn.init(0, size=8)


@pytest.fixture(scope="module")
def gradients(params):
    return jax.jit(lambda params, x, y: per_example(loss, params, x, y))(params, *batch(4))


def test_they_match_the_loop(params, gradients):
    x, y = batch(4)
    one = jax.jit(jax.grad(loss))
    each = [one(params, x[i : i + 1], y[i : i + 1]) for i in range(4)]
    expected = jax.tree.map(lambda *leaves: np.stack(leaves), *each)
    assert jax.tree.structure(gradients) == jax.tree.structure(params)
    for name, leaf in gradients.items():
        assert leaf.shape == (4, *params[name].shape)
        np.testing.assert_allclose(leaf, expected[name], rtol=1e-3, atol=1e-5)


def test_their_mean_is_the_gradient_of_the_mean(params, gradients):
    expected = jax.jit(jax.grad(loss))(params, *batch(4))
    for name, leaf in gradients.items():
        np.testing.assert_allclose(leaf.mean(0), expected[name], rtol=1e-3, atol=1e-5)


def test_the_jaxpr_does_not_grow_with_the_batch(params):
    def equations(function, count):
        return len(jax.make_jaxpr(lambda *arguments: function(loss, *arguments))(params, *batch(count)).eqns)

    assert equations(per_example, 2) == equations(per_example, 6)


def test_each_gradient_is_clipped_as_by_torch(gradients):
    limit = float(np.median(norms(gradients)))  # so that some are clipped and some are not
    got = clipped(gradients, limit)
    for i in range(4):
        leaves = [torch.nn.Parameter(torch.zeros(leaf.shape[1:])) for leaf in gradients.values()]
        for leaf, gradient in zip(leaves, gradients.values(), strict=True):
            leaf.grad = torch.from_numpy(np.array(gradient[i]))
        norm = torch.nn.utils.clip_grad_norm_(leaves, limit)
        np.testing.assert_allclose(norms(gradients)[i], norm, rtol=1e-5)
        for leaf, name in zip(leaves, gradients, strict=True):
            np.testing.assert_allclose(got[name][i], leaf.grad, rtol=1e-4, atol=1e-7)
    assert (np.asarray(norms(got)) <= limit * (1 + 1e-5)).all()
    mean = clipped_mean(gradients, limit)
    np.testing.assert_allclose(mean["fc.weight"], np.mean(got["fc.weight"], 0), rtol=1e-4, atol=1e-7)


def test_zero_gradients_and_those_below_the_limit_are_unchanged(gradients):
    zero = jax.tree.map(np.zeros_like, gradients)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(clipped(zero, 1.0)))
    for name, leaf in clipped(gradients, 1e6).items():
        np.testing.assert_array_equal(leaf, gradients[name])


def test_invalid_arguments_are_rejected(params, gradients):
    x, y = batch(3)
    with pytest.raises(XlaError, match="different numbers of examples and labels"):
        per_example(loss, params, x, y[:2])
    with pytest.raises(XlaError, match="invalid clipping limit"):
        clipped_mean(gradients, 0.0)
