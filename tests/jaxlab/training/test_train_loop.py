"""Training: the update against one computed by hand, donation, equal results in all modes, and accuracy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.training import cnn
from mlhood.jaxlab.training.train_loop import MODES, accuracy, compare_modes, loss, make_step
from mlhood.models.digits import digits


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


def test_donated_params_and_state_are_deleted_and_their_buffers_reused():
    params = cnn.init(0)
    optimizer = optax.sgd(0.1, momentum=0.9)
    state = optimizer.init(params)
    arguments = params, state, np.zeros((2, 1, 32, 32), np.float32), np.zeros(2, np.int32)
    jitted, donating = (make_step(optimizer, loss, mode).lower(*arguments) for mode in ("jit", "donate"))
    assert "tf.aliasing_output" not in jitted.as_text()
    assert "tf.aliasing_output" in donating.as_text()
    compiled = donating.compile()
    sizes = [leaf.nbytes for leaf in jax.tree.leaves((params, state))]
    assert compiled.memory_analysis().alias_size_in_bytes == sum(sizes)
    compiled(*arguments)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((params, state)))


def test_modes_are_timed_side_by_side_and_agree():
    measured = compare_modes(digits(""))
    assert list(measured.measurements) == list(MODES)
    assert all(measurement.agreed for measurement in measured.measurements.values())


def test_accuracy_is_the_share_of_correct_digits():
    images = digits("").test_images
    params = cnn.init(0)
    expected = cnn.logits({name: np.asarray(value) for name, value in params.items()}, images[:50], no_jax).argmax(1)
    right = np.where(np.arange(50) < 30, expected, expected + 1)
    assert accuracy(params, images[:50], right) == 0.6
