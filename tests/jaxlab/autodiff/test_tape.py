"""The tape: what it holds, how it is read backwards, and `grad` on top of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.autodiff import AutodiffError, Entry, Tape, backward


def test_the_tape_holds_every_value_and_what_made_it():
    tape = Tape()
    x, w, b = (tape.value(one) for one in (np.ones((2, 3)), np.ones((4, 3)), np.zeros(4)))
    y = ad.relu(ad.dense(x, w, b))
    ad.reshape(y, (8,))
    assert tape.entries == [
        Entry("dense", (0, 1, 2), 3, {}),
        Entry("relu", (3,), 4, {}),
        Entry("reshape", (4,), 5, {"shape": (8,)}),
    ]
    assert len(tape.values) == 6
    assert (y.number, y.shape, y.dtype, len(y)) == (4, (2, 4), np.float64, 2)
    np.testing.assert_array_equal(tape.values[4], np.full((2, 4), 3))
    assert "3 = dense 0 1 2\n4 = relu 3" in repr(tape)


def test_gradients_of_a_value_that_is_used_twice_add_up():
    tape = Tape()
    x = tape.value(np.array([1.0, 2.0, 3.0]))
    y = x * x + x
    ad.sum(y * x)
    gradients = backward(tape)
    np.testing.assert_allclose(gradients[x.number], 3 * x.array**2 + 2 * x.array)
    np.testing.assert_allclose(gradients[y.number], x.array)


def test_what_does_not_matter_has_no_gradient_and_no_rule_is_asked():
    tape = Tape()
    x, unused = tape.value(1.0), tape.value(np.ones(2))
    aside = ad.exp(unused)
    ad.sum(x * 3)
    gradients = backward(tape, {name: ad.RULES[name] for name in ("mul", "sum")})
    assert unused.number not in gradients
    assert aside.number not in gradients
    assert gradients[x.number] == 3


def test_rules_may_be_ones_own():
    asked = []

    def doubled(g, y, x):
        asked.append((g, y, x))
        return [2 * g]

    tape = Tape()
    x = tape.value(np.array(-3.0))
    ad.relu(x)
    assert backward(tape, {"relu": doubled})[x.number] == 2
    assert asked == [(1.0, 0.0, -3.0)]


@pytest.mark.parametrize("parts", [None, (), (1.0, 2.0), np.ones(1)])
def test_a_rule_that_returns_something_else_is_told(parts):
    tape = Tape()
    ad.relu(tape.value(1.0))
    with pytest.raises(AutodiffError, match="for each input"):
        backward(tape, {"relu": lambda g, y, x: parts})


def test_only_a_number_has_a_gradient_and_only_known_operations_have_rules():
    tape = Tape()
    with pytest.raises(AutodiffError, match="only one number"):
        backward(tape)
    y = ad.exp(tape.value(np.ones(2)))
    with pytest.raises(AutodiffError, match="only one number"):
        backward(tape)
    ad.sum(y)
    with pytest.raises(AutodiffError, match="no rule"):
        backward(tape, {"sum": ad.RULES["sum"]})


def test_numbers_and_arrays_beside_values_are_constants_of_their_dtype():
    x = np.array([1, 2], np.float32)

    def function(x):
        return ad.sum(2.0 / x - np.ones(2, np.float32) * x * 3 + (1 - x) - (-x) * 0.5)

    value, gradient = ad.value_and_grad(function)(x)
    assert value.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, jax.grad(lambda x: function_in_jax(x))(x), rtol=1e-6)


def function_in_jax(x):
    return jnp.sum(2.0 / x - jnp.ones(2) * x * 3 + (1 - x) - (-x) * 0.5)


def test_grad_gives_trees_as_jax_does():
    def function(ops, params, x):
        return (ops.tanh(x * params["a"]["w"]) * params["b"][0] + params["b"][1]).sum()

    params = {"a": {"w": np.array([0.1, 0.2], np.float32)}, "b": (np.array(2.0, np.float32), np.ones(2, np.float32))}
    x = np.array([3, 4], np.float32)
    params["unused"] = np.ones(3, np.float32)
    mine = ad.grad(lambda params, x: function(ad, params, x))(params, x)
    theirs = jax.grad(lambda params, x: function(jnp, params, x))(params, x)
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), mine, theirs)

    both = ad.grad(lambda params, x: function(ad, params, x), argnums=(1, 0))(params, x)
    assert both[0].shape == (2,)
    assert both[1].keys() == params.keys()


def test_the_function_still_works_on_arrays():
    x = np.array([[1.0, 2.0]])
    np.testing.assert_allclose(ad.softmax(ad.log(ad.exp(x))), jax.nn.softmax(x), rtol=1e-6)
    assert ad.mean(ad.sigmoid(x)) == pytest.approx(float(jax.nn.sigmoid(x).mean()), rel=1e-6)


def test_a_result_apart_from_the_arguments_and_other_tapes_are_told():
    with pytest.raises(AutodiffError, match="does not depend"):
        ad.grad(lambda x: np.float32(3))(np.ones(2))
    with pytest.raises(AutodiffError, match="two derivatives meet"):
        ad.grad(lambda x: ad.sum(x * Tape().value(np.ones(2))))(np.ones(2))
    with pytest.raises(AutodiffError, match="two derivatives meet"):
        ad.jvp(ad.grad(lambda x: ad.sum(x * x)), (np.ones(2),), (np.ones(2),))
    with pytest.raises(AutodiffError, match="not logits and labels"):
        ad.cross_entropy(np.ones((2, 3)), np.ones(2))
