"""The tape: what it records, and how it is traversed backwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.autodiff import AutodiffError, Entry, Tape, backward
from tests.jaxlab.autodiff.gradients import value_and_gradients


def test_the_tape_records_every_value_and_operation():
    tape = Tape()
    x, w, b = (tape.value(array) for array in (np.ones((2, 3)), np.ones((4, 3)), np.zeros(4)))
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


def test_gradients_of_a_value_that_is_used_twice_are_accumulated():
    tape = Tape()
    x = tape.value(np.array([1.0, 2.0, 3.0]))
    y = x * x + x
    ad.sum(y * x)
    gradients = backward(tape)
    np.testing.assert_allclose(gradients[x.number], 3 * x.array**2 + 2 * x.array)
    np.testing.assert_allclose(gradients[y.number], x.array)


def test_unused_values_have_no_gradient_and_need_no_rule():
    tape = Tape()
    x, unused = tape.value(1.0), tape.value(np.ones(2))
    dead = ad.exp(unused)
    ad.sum(x * 3)
    gradients = backward(tape, {name: ad.RULES[name] for name in ("mul", "sum")})
    assert unused.number not in gradients
    assert dead.number not in gradients
    assert gradients[x.number] == 3


def test_custom_rules():
    calls = []

    def doubled(g, y, x):
        calls.append((g, y, x))
        return [2 * g]

    tape = Tape()
    x = tape.value(np.array(-3.0))
    ad.relu(x)
    assert backward(tape, {"relu": doubled})[x.number] == 2
    assert calls == [(1.0, 0.0, -3.0)]


@pytest.mark.parametrize("parts", [None, (), (1.0, 2.0), np.ones(1)])
def test_a_rule_with_an_invalid_result_is_rejected(parts):
    tape = Tape()
    ad.relu(tape.value(1.0))
    with pytest.raises(AutodiffError, match="for each input"):
        backward(tape, {"relu": lambda g, y, x: parts})


def test_only_scalars_have_a_gradient_and_operations_need_a_rule():
    tape = Tape()
    with pytest.raises(AutodiffError, match="only for scalars"):
        backward(tape)
    y = ad.exp(tape.value(np.ones(2)))
    with pytest.raises(AutodiffError, match="only for scalars"):
        backward(tape)
    ad.sum(y)
    with pytest.raises(AutodiffError, match="no differentiation rule"):
        backward(tape, {"sum": ad.RULES["sum"]})


def test_constants_keep_the_dtype_of_the_values_they_are_combined_with():
    x = np.array([1, 2], np.float32)

    def function(x):
        return ad.sum(2.0 / x - np.ones(2, np.float32) * x * 3 + (1 - x) - (-x) * 0.5)

    value, gradient = value_and_gradients(function, x)
    assert value.dtype == gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, jax.grad(lambda x: function_in_jax(x))(x), rtol=1e-6)


def function_in_jax(x):
    return jnp.sum(2.0 / x - jnp.ones(2) * x * 3 + (1 - x) - (-x) * 0.5)


def test_gradients_are_trees_like_those_of_jax():
    def function(ops, params, x):
        return (ops.tanh(x * params["a"]["w"]) * params["b"][0] + params["b"][1]).sum()

    params = {"a": {"w": np.array([0.1, 0.2], np.float32)}, "b": (np.array(2.0, np.float32), np.ones(2, np.float32))}
    x = np.array([3, 4], np.float32)
    params["unused"] = np.ones(3, np.float32)
    _, got, by_x = value_and_gradients(lambda params, x: function(ad, params, x), params, x)
    expected = jax.grad(lambda params, x: function(jnp, params, x))(params, x)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, expected)
    assert by_x.shape == (2,)


def test_operators_on_arrays():
    x = np.array([[1.0, 2.0]])
    np.testing.assert_allclose(ad.softmax(ad.log(ad.exp(x))), jax.nn.softmax(x), rtol=1e-6)
    assert ad.mean(ad.sigmoid(x)) == pytest.approx(float(jax.nn.sigmoid(x).mean()), rel=1e-6)


def test_values_of_two_tapes_and_invalid_labels_are_rejected():
    with pytest.raises(AutodiffError, match="different tapes"):
        ad.add(Tape().value(np.ones(2)), Tape().value(np.ones(2)))
    with pytest.raises(AutodiffError, match="invalid logits or labels"):
        ad.cross_entropy(np.ones((2, 3)), np.ones(2))
