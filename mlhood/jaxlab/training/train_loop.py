"""Training the digits' network with optax: the same step run eagerly, compiled, and compiled with donated buffers.

A step is a pure function (parameters, optimiser state, batch) -> (parameters, state, loss), so compiling it is one
call. Donation is an option of that call: it promises XLA that the caller will not read the old parameters and state
again, so that the new ones can be written into their buffers.

>>> from mlhood.models import digits
>>> runs = {mode: train(digits(), mode, steps=40) for mode in MODES}
>>> train(digits()).accuracy
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mlhood.errors import XlaError
from mlhood.jaxlab.training import cnn
from mlhood.measure import Comparison, compare

Params = Any
Loss = Callable[[Params, jax.Array, jax.Array], jax.Array]
Step = Callable[..., tuple[Params, Any, jax.Array]]
Mode = Literal["eager", "jit", "donate"]
MODES: tuple[Mode, ...] = ("eager", "jit", "donate")
"""How a step runs: operation by operation; compiled; compiled, and writing into the buffers of its arguments."""
_LEARNING_RATE = 3e-3


class Data(Protocol):
    """Images and labels as `mlhood.models.digits` returns them; this package uses no model of torch."""

    @property
    def train_images(self) -> np.ndarray:
        """float32 [N, 1, S, S]."""
        ...

    @property
    def train_labels(self) -> np.ndarray:
        """Integers [N]."""
        ...

    @property
    def test_images(self) -> np.ndarray:
        """float32 [M, 1, S, S]."""
        ...

    @property
    def test_labels(self) -> np.ndarray:
        """Integers [M]."""
        ...


class History(NamedTuple):
    """The data of a learning curve."""

    losses: tuple[float, ...]
    """Mean loss of each step's batch, before the step."""
    accuracies: Mapping[int, float]
    """Accuracy on the held-out images, by the number of steps taken."""


@dataclass(frozen=True)
class Run:
    """The result of a training run.

    Args:
        mode: How its steps ran.
        params: The trained parameters.
        history: Losses and accuracies.
        seconds: Seconds of each step, until its results were ready.
        compile_seconds: For tracing, lowering and compiling the step; 0 for "eager", which compiles each operation
            during the first step.
        aliased: Bytes of a step's results that are written into its arguments' buffers.
    """

    mode: Mode
    params: Params
    history: History
    seconds: tuple[float, ...]
    compile_seconds: float
    aliased: int

    @property
    def accuracy(self) -> float:
        """Accuracy on the held-out images at the end."""
        return self.history.accuracies[max(self.history.accuracies)]

    @property
    def step_seconds(self) -> float:
        """Median of all steps but the first, which may include compilation."""
        return median(self.seconds[1:] or self.seconds)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean of log(sum(exp(logits))) - logits[label] over a batch: float32 [N, C], int [N] -> []."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the digits' network's mean cross entropy on a batch: float32 [N, 1, S, S], int [N] -> []."""
    return cross_entropy(cnn.logits(params, x), y)


def adam(steps: int) -> optax.GradientTransformation:
    """Return Adam with a learning rate that decays from 0.003 to 0 over these steps on a cosine schedule."""
    return optax.adam(optax.cosine_decay_schedule(_LEARNING_RATE, steps))


def make_step(optimizer: optax.GradientTransformation, loss: Loss, mode: Mode = "donate") -> Step:
    """Return one step of training: (params, state, x, y) -> (params, state, loss before the step).

    Args:
        optimizer: An optax optimiser; `optimizer.init(params)` is the initial state.
        loss: (params, x, y) -> a scalar.
        mode: "eager" dispatches each operation; "jit" is compiled; "donate" is compiled, and deletes the params and
            state that it is called with.

    Raises:
        XlaError: The mode is unknown.
    """
    if mode not in MODES:
        raise XlaError("unknown mode", expected=", ".join(MODES), got=repr(mode))

    def step(params: Params, state: Any, x: jax.Array, y: jax.Array) -> tuple[Params, Any, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    if mode == "eager":
        return step
    return jax.jit(step, donate_argnums=(0, 1) if mode == "donate" else ())


def train(
    data: Data,
    mode: Mode = "donate",
    optimizer: optax.GradientTransformation | None = None,
    *,
    epochs: int = 10,
    batch_size: int = 32,
    steps: int | None = None,
    eval_every: int | None = None,
    seed: int = 0,
) -> Run:
    """Train the digits' network. The seed determines the initial parameters and the batches, whatever the mode.

    Args:
        data: Images to train on and held-out images, with their labels.
        mode: One of `MODES`; see `make_step`.
        optimizer: An optax optimiser; `adam` over all epochs if omitted.
        epochs: Passes over the training images, without those that fill no batch.
        batch_size: Images per step.
        steps: Stop after this many steps; the run is then a prefix of the full one.
        eval_every: Steps between evaluations on the held-out images, besides the last one; an epoch if omitted.
        seed: Seed of the initial weights and of the order of the images.

    Raises:
        XlaError: The mode is unknown, there is nothing to do, or the loss diverges.
    """
    per_epoch = _steps_per_epoch(data, batch_size, (epochs, steps, eval_every))
    total = epochs * per_epoch
    optimizer = adam(total) if optimizer is None else optimizer
    params = cnn.init(seed, size=data.train_images.shape[-1])
    state = optimizer.init(params)
    first_batch = next(_batches(data, 1, batch_size, seed))
    step, compile_seconds, aliased = _compile(make_step(optimizer, loss, mode), params, state, *first_batch)
    last = min(steps or total, total)
    losses, seconds, accuracies = [], [], {}
    for i, batch in zip(range(1, last + 1), _batches(data, epochs, batch_size, seed), strict=False):
        start = time.perf_counter()
        params, state, value = jax.block_until_ready(step(params, state, *batch))
        seconds.append(time.perf_counter() - start)
        losses.append(_require_finite(float(value), i))
        if i % (eval_every or per_epoch) == 0 or i == last:
            accuracies[i] = accuracy(params, data.test_images, data.test_labels)
    return Run(mode, params, History(tuple(losses), accuracies), tuple(seconds), compile_seconds, aliased)


def _steps_per_epoch(data: Data, batch_size: int, counts: tuple[int | None, ...]) -> int:
    steps = len(data.train_images) // max(batch_size, 1)
    if steps < 1 or any(count is not None and count < 1 for count in (batch_size, *counts)):
        raise XlaError(
            "there are no steps to run",
            expected=f"at least one epoch, step and image per batch, and batches of at most {len(data.train_images)}",
            got=f"batch_size={batch_size}, and (epochs, steps, eval_every) = {counts}",
        )
    return steps


def _batches(data: Data, epochs: int, size: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the batches of all epochs; an incomplete last batch is dropped, as its shape would need a recompilation."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(data.train_images))
        for start in range(0, len(order) - size + 1, size):
            batch = order[start : start + size]
            yield data.train_images[batch], data.train_labels[batch].astype(np.int32)


def _compile(step: Any, *arguments: Any) -> tuple[Step, float, int]:
    """Compile a step ahead of time; return it, the seconds of compilation, and the bytes of aliased results."""
    if not hasattr(step, "lower"):
        return step, 0.0, 0
    start = time.perf_counter()
    compiled = step.lower(*arguments).compile()
    return compiled, time.perf_counter() - start, compiled.memory_analysis().alias_size_in_bytes


def _require_finite(value: float, step: int) -> float:
    if math.isfinite(value):
        return value
    todo = "use a smaller learning rate, and check the images for infinite values"
    raise XlaError("the training diverged: the loss is not finite", where=f"step {step}", got=value, todo=todo)


def accuracy(params: Params, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images whose largest logit is the label's: float32 [N, 1, S, S], int [N] -> 0 to 1."""
    return float(np.mean(np.asarray(_logits(params, images)).argmax(1) == labels))


_logits = jax.jit(cnn.logits)


def compare_modes(
    data: Data,
    optimizer: optax.GradientTransformation | None = None,
    *,
    batch_size: int = 32,
    rounds: int = 21,
    seed: int = 0,
) -> Comparison:
    """Time one step in all modes side by side, on one batch; each mode trains its own parameters.

    Args:
        data: As for `train`.
        optimizer: An optax optimiser; `adam` if omitted.
        batch_size: Images per step.
        rounds: How often each mode is timed, at least 21.
        seed: Seed of the initial weights and of the batch.

    Raises:
        MeasureError: There are too few rounds.
    """
    optimizer = adam(10_000) if optimizer is None else optimizer
    batch = next(_batches(data, 1, batch_size, seed))

    def stepper(mode: Mode) -> Callable[[], jax.Array]:
        params = cnn.init(seed, size=batch[0].shape[-1])
        state = optimizer.init(params)
        step = make_step(optimizer, loss, mode)

        def run_step() -> jax.Array:
            nonlocal params, state
            params, state, value = jax.block_until_ready(step(params, state, *batch))
            return value

        return run_step

    return compare({mode: stepper(mode) for mode in MODES}, rounds=rounds)
