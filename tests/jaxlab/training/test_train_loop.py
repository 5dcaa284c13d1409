"""Training: the update against one computed by hand, equal results in all modes, and accuracy on held-out digits."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mlhood.errors import XlaError
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.training import cnn
from mlhood.jaxlab.training.train_loop import MODES, compare_modes, cross_entropy, loss, make_step, train
from mlhood.models.digits import Digits, digits


@pytest.fixture(scope="module")
def subset():
    """200 digits of 16 x 16 to train on, 50 held out."""
    x, y, held_out, labels, source = digits("")
    return Digits(x[:200, :, ::2, ::2], y[:200], held_out[:50, :, ::2, ::2], labels[:50], source)


def squares(params, x, y):
    return jnp.mean((x @ params["w"] - y) ** 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_is_momentum_computed_by_hand(mode):
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


def test_cross_entropy_is_the_mean_negative_log_likelihood():
    logits, labels = np.array([[1.0, 2, 3], [0, 100, 0]], np.float32), np.array([0, 1])
    expected = (np.log(np.exp([1, 2, 3]).sum()) - 1 + 0) / 2
    np.testing.assert_allclose(cross_entropy(logits, labels), expected, rtol=1e-6)


def test_donated_params_and_state_are_deleted_and_their_buffers_reused():
    params = cnn.init(0, size=8)
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = optimizer.init(params)
    arguments = params, state, np.zeros((2, 1, 8, 8), np.float32), np.zeros(2, np.int32)
    jitted, donating = (make_step(optimizer, loss, mode).lower(*arguments) for mode in ("jit", "donate"))
    assert "tf.aliasing_output" not in jitted.as_text()
    assert "tf.aliasing_output" in donating.as_text()
    compiled = donating.compile()
    sizes = [leaf.nbytes for leaf in jax.tree.leaves((params, state))]
    assert compiled.memory_analysis().alias_size_in_bytes == sum(sizes)
    compiled(*arguments)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((params, state)))


def test_all_modes_compute_the_same(subset):
    runs = {mode: train(subset, mode, optax.sgd(0.1), steps=8) for mode in MODES}
    for run in runs.values():
        np.testing.assert_allclose(run.history.losses, runs["jit"].history.losses, rtol=1e-3)
        assert run.history.accuracies.keys() == {6, 8}  # six batches of 32 an epoch, and the end
        assert len(run.seconds) == 8
        for name, value in run.params.items():
            np.testing.assert_allclose(value, runs["jit"].params[name], atol=1e-4)
    assert runs["eager"].compile_seconds == 0 < min(runs["jit"].compile_seconds, runs["donate"].compile_seconds)
    assert runs["eager"].aliased == runs["jit"].aliased == 0 < runs["donate"].aliased


def test_a_stopped_run_is_a_prefix_of_the_full_run(subset):
    full = train(subset, "jit", optax.sgd(0.1), epochs=2, eval_every=4)
    assert full.history.accuracies.keys() == {4, 8, 12}
    stopped = train(subset, "jit", optax.sgd(0.1), epochs=2, steps=5)
    np.testing.assert_allclose(full.history.losses[:5], stopped.history.losses, rtol=1e-5)
    other = train(subset, "jit", optax.sgd(0.1), epochs=2, seed=1, steps=5)
    assert not np.allclose(other.history.losses, stopped.history.losses, rtol=1e-2)


def test_held_out_digits_are_classified():
    data = digits("")
    run = train(data)
    assert run.accuracy >= 0.97
    assert run.history.losses[-1] < 0.1 < run.history.losses[0]
    arrays = {name: np.asarray(value) for name, value in run.params.items()}
    correct = cnn.logits(arrays, data.test_images, no_jax).argmax(1) == data.test_labels
    assert abs(correct.mean() - run.accuracy) <= 1 / len(data.test_labels)  # two logits may be almost equal


def test_modes_are_timed_side_by_side(subset):
    measured = compare_modes(subset, optax.sgd(0.1))
    assert list(measured.measurements) == list(MODES)
    assert all(measurement.agreed for measurement in measured.measurements.values())


def test_invalid_arguments_and_divergence_are_rejected(subset):
    for invalid in ({"batch_size": 0}, {"batch_size": 201}, {"epochs": 0}, {"steps": 0}, {"eval_every": 0}):
        with pytest.raises(XlaError, match="no steps to run"):
            train(subset, "jit", **invalid)
    with pytest.raises(XlaError, match="unknown mode"):
        train(subset, "fast")  # pyright: ignore
    with pytest.raises(XlaError, match="diverged"):
        train(subset, "jit", optax.sgd(1e30))
