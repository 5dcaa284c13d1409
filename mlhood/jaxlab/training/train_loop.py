"""Training the digits' network with optax: the same step run eagerly, compiled, and compiled with donated buffers.

A step is a pure function (parameters, optimiser state, batch) -> (parameters, state, loss), so compiling it is one
call. Donation is an option of that call: it promises XLA that the caller will not read the old parameters and state
again, so that the new ones can be written into their buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mlhood.jaxlab.training import cnn
from mlhood.measure import Comparison, compare

Params = Any
Loss = Callable[[Params, jax.Array, jax.Array], jax.Array]
Step = Callable[..., tuple[Params, Any, jax.Array]]
Mode = Literal["eager", "jit", "donate"]
MODES: tuple[Mode, ...] = ("eager", "jit", "donate")
"""How a step runs: operation by operation; compiled; compiled, and writing into the buffers of its arguments."""
_LEARNING_RATE = 3e-3
_BATCH = 32


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the digits' network's mean cross entropy on a batch: float32 [N, 1, 32, 32], int [N] -> []."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(cnn.logits(params, x), y))


def make_step(optimizer: optax.GradientTransformation, loss: Loss, mode: Mode = "donate") -> Step:
    """Return one step of training: (params, state, x, y) -> (params, state, loss before the step).

    Args:
        optimizer: An optax optimiser; `optimizer.init(params)` is the initial state.
        loss: (params, x, y) -> a scalar.
        mode: "eager" dispatches each operation; "jit" is compiled; "donate" is compiled, and deletes the params and
            state that it is called with.
    """

    def step(params: Params, state: Any, x: jax.Array, y: jax.Array) -> tuple[Params, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    if mode == "eager":
        return step
    return jax.jit(step, donate_argnums=(0, 1) if mode == "donate" else ())


def accuracy(params: Params, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images whose largest logit is the label's: float32 [N, 1, 32, 32], int [N] -> 0 to 1."""
    return float(np.mean(np.asarray(_logits(params, images)).argmax(1) == labels))


_logits = jax.jit(cnn.logits)


def compare_modes(data: Any) -> Comparison:
    """Time one step in all modes side by side, on the first batch of 32; each mode trains its own parameters.

    Args:
        data: Images and labels as `mlhood.models.digits` returns them.
    """
    optimizer = optax.adam(_LEARNING_RATE)
    batch = data.train_images[:_BATCH], data.train_labels[:_BATCH].astype(np.int32)

    def stepper(mode: Mode) -> Callable[[], jax.Array]:
        params = cnn.init(0)
        state = optimizer.init(params)
        step = make_step(optimizer, loss, mode)

        def run_step() -> jax.Array:
            nonlocal params, state
            params, state, value = jax.block_until_ready(step(params, state, *batch))
            return value

        return run_step

    return compare({mode: stepper(mode) for mode in MODES})
