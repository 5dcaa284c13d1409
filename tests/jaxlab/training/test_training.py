"""Training: the update against one worked out by hand, all modes alike, and digits that were not trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mlhood.errors import XlaError
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.training import cnn
from mlhood.jaxlab.training.training import (
    MODES,
    accuracy,
    compare_modes,
    cross_entropy,
    loss,
    make_step,
    train,
)
from mlhood.models.digits import Digits, digits


@pytest.fixture(scope="module")
def some():
    """200 digits of 16 x 16 to train on, 50 held out."""
    x, y, held_out, labels, source = digits("")
    return Digits(x[:200, :, ::2, ::2], y[:200], held_out[:50, :, ::2, ::2], labels[:50], source)


def squares(params, x, y):
    return jnp.mean((x @ params["w"] - y) ** 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_is_momentum_worked_out_by_hand(mode):
    rng = np.random.default_rng(0)
    w, x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((3,), (8, 3), (8,)))
    optimizer = optax.sgd(0.1, momentum=0.9)
    params = {"w": jnp.array(w)}
    state, step, velocity = optimizer.init(params), make_step(optimizer, squares, mode), np.zeros(3, np.float32)
    for _ in range(3):
        params, state, value = step(params, state, x, y)
        np.testing.assert_allclose(value, np.mean((x @ w - y) ** 2), rtol=1e-5)
        velocity = 0.9 * velocity + 2 / 8 * x.T @ (x @ w - y)
        w = w - 0.1 * velocity
        np.testing.assert_allclose(params["w"], w, rtol=1e-5)


def test_cross_entropy_is_the_mean_of_what_the_label_lacks_to_certainty():
    logits, labels = np.array([[1.0, 2, 3], [0, 100, 0]], np.float32), np.array([0, 1])
    expected = (np.log(np.exp([1, 2, 3]).sum()) - 1 + 0) / 2
    np.testing.assert_allclose(cross_entropy(logits, labels), expected, rtol=1e-6)


def test_donated_params_and_state_are_gone_and_their_memory_is_used():
    params = cnn.init(0, size=8)
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = optimizer.init(params)
    arguments = params, state, np.zeros((2, 1, 8, 8), np.float32), np.zeros(2, np.int32)
    kept, given = (make_step(optimizer, loss, mode).lower(*arguments) for mode in ("jit", "donate"))
    assert "tf.aliasing_output" not in kept.as_text()
    assert "tf.aliasing_output" in given.as_text()
    compiled = given.compile()
    sizes = [leaf.nbytes for leaf in jax.tree.leaves((params, state))]
    assert compiled.memory_analysis().alias_size_in_bytes == sum(sizes)
    compiled(*arguments)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((params, state)))


def test_all_modes_take_the_same_way(some):
    runs = {mode: train(some, mode, optax.sgd(0.1), steps=8) for mode in MODES}
    for run in runs.values():
        np.testing.assert_allclose(run.history.losses, runs["jit"].history.losses, rtol=1e-3)
        assert run.history.accuracies.keys() == {6, 8}  # six batches of 32 an epoch, and the end
        assert len(run.seconds) == 8
        for name, value in run.params.items():
            np.testing.assert_allclose(value, runs["jit"].params[name], atol=1e-4)
    assert runs["eager"].compile_seconds == 0 < min(runs["jit"].compile_seconds, runs["donate"].compile_seconds)
    assert runs["eager"].aliased == runs["jit"].aliased == 0 < runs["donate"].aliased


def test_a_run_that_is_stopped_is_the_beginning_of_the_whole(some):
    whole = train(some, "jit", optax.sgd(0.1), epochs=2, every=4)
    assert whole.history.accuracies.keys() == {4, 8, 12}
    stopped = train(some, "jit", optax.sgd(0.1), epochs=2, steps=5)
    np.testing.assert_allclose(whole.history.losses[:5], stopped.history.losses, rtol=1e-5)
    other = train(some, "jit", optax.sgd(0.1), epochs=2, seed=1, steps=5)
    assert not np.allclose(other.history.losses, stopped.history.losses, rtol=1e-2)


def test_digits_that_were_not_trained_on_are_read():
    data = digits("")
    run = train(data)
    assert run.accuracy >= 0.97
    assert run.history.losses[-1] < 0.1 < run.history.losses[0]
    arrays = {name: np.asarray(value) for name, value in run.params.items()}
    without = cnn.logits(arrays, data.test_images, no_jax).argmax(1) == data.test_labels
    assert abs(without.mean() - run.accuracy) <= 1 / len(data.test_labels)  # two logits may be as good as equal


def test_an_untrained_network_guesses(some):
    assert accuracy(cnn.init(0, size=16), some.test_images, some.test_labels) < 0.4


def test_modes_are_timed_side_by_side(some):
    measured = compare_modes(some, optax.sgd(0.1))
    assert list(measured.measurements) == list(MODES)
    assert all(one.agreed for one in measured.measurements.values())


def test_what_cannot_be_trained_is_refused(some):
    for wrong in ({"batch_size": 0}, {"batch_size": 201}, {"epochs": 0}, {"steps": 0}, {"every": 0}):
        with pytest.raises(XlaError, match="no step to take"):
            train(some, "jit", **wrong)
    with pytest.raises(XlaError, match="no such way"):
        train(some, "fast")  # pyright: ignore
    with pytest.raises(XlaError, match="went astray"):
        train(some, "jit", optax.sgd(1e30))
