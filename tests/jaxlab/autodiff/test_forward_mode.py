"""Dual numbers: the derivative in one direction matches `jax.jvp` and the gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.autodiff import AutodiffError

RNG = np.random.default_rng(0)


def function(ops, params, x):
    y = ops.tanh(x * params["w"] - 0.5) / (params["b"][0] + 2.0)
    return y, ops.sum(ops.exp(-y) * np.float32(3))


def random_arguments():
    params = {"w": RNG.standard_normal(3), "b": [RNG.random(())]}
    return jax.tree.map(np.float32, (params, RNG.standard_normal((2, 3))))


def test_values_and_tangents_match_jax():
    primals, tangents = random_arguments(), random_arguments()
    got = ad.jvp(lambda *arguments: function(ad, *arguments), primals, tangents)
    expected = jax.jvp(lambda *arguments: function(jnp, *arguments), primals, tangents)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {np.dtype(np.float32)}


def test_both_modes_agree():
    (params, x), (direction, _) = random_arguments(), random_arguments()

    def loss(params):
        return function(ad, params, x)[1]

    _, tangent = ad.jvp(loss, (params,), (direction,))
    gradient = ad.grad(loss)(params)
    parts = jax.tree.map(lambda g, u: (g * u).sum(), gradient, direction)
    assert tangent == pytest.approx(sum(jax.tree.leaves(parts)), rel=1e-5)


def test_mismatched_arguments_are_rejected():
    x = np.ones(2)
    with pytest.raises(AutodiffError, match="has the shape of its primal"):
        ad.jvp(ad.exp, (x,), (np.ones(3),))
    with pytest.raises(AutodiffError, match="does not depend"):
        ad.jvp(lambda x: 3.0, (x,), (x,))
    with pytest.raises(AutodiffError, match="different derivatives"):
        ad.jvp(lambda x: x * ad.Tape().value(np.ones(2)), (x,), (x,))
