"""Clipping of per-example gradients against torch's."""

import jax
import numpy as np
import pytest
import torch

from mlhood.jaxlab.training.per_example import clipped, norms


@pytest.fixture
def gradients():
    rng = np.random.default_rng(0)
    return {"weight": rng.standard_normal((4, 3, 5), np.float32), "bias": rng.standard_normal((4, 3), np.float32)}


def test_each_gradient_is_clipped_as_by_torch(gradients):
    limit = float(np.median(norms(gradients)))  # so that some are clipped and some are not
    got = clipped(gradients, limit)
    for i in range(4):
        leaves = [torch.nn.Parameter(torch.zeros(leaf.shape[1:])) for leaf in gradients.values()]
        for leaf, gradient in zip(leaves, gradients.values(), strict=True):
            leaf.grad = torch.from_numpy(gradient[i].copy())
        norm = torch.nn.utils.clip_grad_norm_(leaves, limit)
        np.testing.assert_allclose(norms(gradients)[i], norm, rtol=1e-5)
        for leaf, name in zip(leaves, gradients, strict=True):
            np.testing.assert_allclose(got[name][i], leaf.grad, rtol=1e-4, atol=1e-7)


def test_zero_gradients_and_those_below_the_limit_are_unchanged(gradients):
    zero = jax.tree.map(np.zeros_like, gradients)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(clipped(zero, 1.0)))
    for name, leaf in clipped(gradients, 1e6).items():
        np.testing.assert_array_equal(leaf, gradients[name])
