"""Dual numbers: the derivative in one direction, as `jax.jvp` gives it, and as the gradient foretells it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.autodiff import AutodiffError

DRAW = np.random.default_rng(0)


def function(ops, params, x):
    y = ops.tanh(x * params["w"] - 0.5) / (params["b"][0] + 2.0)
    return y, ops.sum(ops.exp(-y) * np.float32(3))


def drawn():
    params = {"w": DRAW.standard_normal(3), "b": [DRAW.random(())]}
    return jax.tree.map(np.float32, (params, DRAW.standard_normal((2, 3))))


def test_values_and_tangents_are_those_of_jax():
    primals, tangents = drawn(), drawn()
    mine = ad.jvp(lambda *given: function(ad, *given), primals, tangents)
    theirs = jax.jvp(lambda *given: function(jnp, *given), primals, tangents)
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6), mine, theirs)
    assert {one.dtype for one in jax.tree.leaves(mine)} == {np.dtype(np.float32)}


def test_both_modes_agree():
    (params, x), (direction, _) = drawn(), drawn()

    def loss(params):
        return function(ad, params, x)[1]

    _, tangent = ad.jvp(loss, (params,), (direction,))
    gradient = ad.grad(loss)(params)
    parts = jax.tree.map(lambda g, u: (g * u).sum(), gradient, direction)
    assert tangent == pytest.approx(sum(jax.tree.leaves(parts)), rel=1e-5)


def test_what_does_not_fit_is_told():
    x = np.ones(2)
    with pytest.raises(AutodiffError, match="has its value's shape"):
        ad.jvp(ad.exp, (x,), (np.ones(3),))
    with pytest.raises(AutodiffError, match="two trees"):
        ad.jvp(lambda tree: tree["a"], ({"a": x},), ({"b": x},))
    with pytest.raises(AutodiffError, match="two trees"):
        ad.jvp(ad.add, (x, x), (x,))
    with pytest.raises(AutodiffError, match="does not depend"):
        ad.jvp(lambda x: 3.0, (x,), (x,))
    with pytest.raises(AutodiffError, match="two derivatives meet"):
        ad.jvp(lambda x: x * ad.Tape().value(np.ones(2)), (x,), (x,))
