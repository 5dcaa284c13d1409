"""Training the digits' network with optax: the same step operation by operation, compiled, and in donated buffers.

A step is a pure function (parameters, optimiser's state, batch) -> (parameters, state, loss). So compiling it is one
call, and so is donating: telling XLA that the caller will not read the old parameters and state again, whose memory
then takes the new ones.

>>> from mlhood.models import digits
>>> runs = {mode: train(digits(), mode, steps=40) for mode in MODES}
>>> train(digits()).accuracy
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
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
_RATE = 3e-3


class Data(Protocol):
    """Images and labels as `mlhood.models.digits` gives them, which are not loaded from here: torch would be, too."""

    @property
    def train_images(self) -> np.ndarray:
        """float32 [N, 1, S, S]."""
        ...

    @property
    def train_labels(self) -> np.ndarray:
        """Whole numbers [N]."""
        ...

    @property
    def test_images(self) -> np.ndarray:
        """float32 [M, 1, S, S]."""
        ...

    @property
    def test_labels(self) -> np.ndarray:
        """Whole numbers [M]."""
        ...


class History(NamedTuple):
    """What became of a training, for its learning curve."""

    losses: tuple[float, ...]
    """Mean loss of each step's batch, before the step."""
    accuracies: Mapping[int, float]
    """Share of the held-out images that were right, by the number of steps taken."""


@dataclass(frozen=True)
class Run:
    """A training.

    Args:
        mode: How its steps ran.
        params: What was learned.
        history: Losses and accuracies.
        seconds: Of each step, until all of its results were there.
        compile_seconds: For tracing, lowering and compiling the step; 0 for "eager", where the first step of all takes
            that long, an operation at a time.
        aliased: Bytes of a step's results that lie where its arguments were.
    """

    mode: Mode
    params: Params
    history: History
    seconds: tuple[float, ...]
    compile_seconds: float
    aliased: int

    @property
    def accuracy(self) -> float:
        """Share of the held-out images that were right at the end."""
        return self.history.accuracies[max(self.history.accuracies)]

    @property
    def step_seconds(self) -> float:
        """Median of all steps but the first, which may have compiled."""
        return median(self.seconds[1:] or self.seconds)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the mean of log(sum(exp(logits))) - logits[label] over a batch: float32 [N, C], int [N] -> []."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the digits' network's mean cross entropy on a batch: float32 [N, 1, S, S], int [N] -> []."""
    return cross_entropy(cnn.logits(params, x), y)


def adam(steps: int) -> optax.GradientTransformation:
    """Return Adam, whose learning rate falls from 0.003 to 0 over so many steps as half a cosine."""
    return optax.adam(optax.cosine_decay_schedule(_RATE, steps))


def make_step(optimizer: optax.GradientTransformation, loss: Loss, mode: Mode = "donate") -> Step:
    """Return one step of training: (params, state, x, y) -> (params, state, loss before the step).

    Args:
        optimizer: An optimiser of optax; `optimizer.init(params)` gives the first state.
        loss: (params, x, y) -> a number.
        mode: "eager" runs operation by operation; "jit" is compiled; "donate" is compiled, and the params and state
            that it is called with are gone afterwards.

    Raises:
        XlaError: There is no such mode.
    """
    if mode not in MODES:
        raise XlaError("there is no such way to run a step", expected=", ".join(MODES), got=repr(mode))

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
    every: int | None = None,
    seed: int = 0,
) -> Run:
    """Train the digits' network. Same seed and data, same beginning and batches, whatever the mode.

    Args:
        data: Images to train on and images held out, with their labels.
        mode: One of `MODES`; see `make_step`.
        optimizer: An optimiser of optax; `adam` over all epochs if left out.
        epochs: How often each image is seen, but for a rest that fills no batch.
        batch_size: Images a step.
        steps: Stop after so many; a run that is stopped is the beginning of the whole one.
        every: Steps from one look at the held-out images to the next, besides the one at the end; an epoch if left out.
        seed: Of the weights at the beginning and of the order of the images.

    Raises:
        XlaError: There is no such mode or nothing to do, or the loss is no longer a number.
    """
    epoch = _steps_of_an_epoch(data, batch_size, (epochs, steps, every))
    optimizer = adam(epochs * epoch) if optimizer is None else optimizer
    params = cnn.init(seed, size=data.train_images.shape[-1])
    state = optimizer.init(params)
    first = next(_batches(data, 1, batch_size, seed))
    step, compile_seconds, aliased = _ready(make_step(optimizer, loss, mode), params, state, *first)
    last = min(steps or epochs * epoch, epochs * epoch)
    losses, seconds, accuracies = [], [], {}
    for number, batch in zip(range(1, last + 1), _batches(data, epochs, batch_size, seed), strict=False):
        start = time.perf_counter()
        params, state, value = jax.block_until_ready(step(params, state, *batch))
        seconds.append(time.perf_counter() - start)
        losses.append(_finite(float(value), number))
        if number % (every or epoch) == 0 or number == last:
            accuracies[number] = accuracy(params, data.test_images, data.test_labels)
    return Run(mode, params, History(tuple(losses), accuracies), tuple(seconds), compile_seconds, aliased)


def _steps_of_an_epoch(data: Data, batch_size: int, counts: tuple[int | None, ...]) -> int:
    epoch = len(data.train_images) // max(batch_size, 1)
    if epoch < 1 or any(count is not None and count < 1 for count in (batch_size, *counts)):
        raise XlaError(
            "there is no step to take",
            expected=f"at least one epoch, step and image a batch, and batches of at most {len(data.train_images)}",
            got=f"batch_size={batch_size}, and {counts} epochs, steps and steps from one look to the next",
        )
    return epoch


def _batches(data: Data, epochs: int, size: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the batches of all epochs; what does not fill one is left out, as another shape would compile anew."""
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        order = rng.permutation(len(data.train_images))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield data.train_images[chosen], data.train_labels[chosen].astype(np.int32)


def _ready(step: Any, *arguments: Any) -> tuple[Step, float, int]:
    """Compile a step ahead of time; return it, the seconds that took, and the bytes that its results share."""
    if not hasattr(step, "lower"):
        return step, 0.0, 0
    start = time.perf_counter()
    compiled = step.lower(*arguments).compile()
    return compiled, time.perf_counter() - start, compiled.memory_analysis().alias_size_in_bytes


def _finite(value: float, step: int) -> float:
    if math.isfinite(value):
        return value
    raise XlaError(
        "the training went astray: the loss is no longer a finite number",
        where=f"step {step}",
        got=value,
        todo="take a smaller learning rate, and look for infinite values in the images",
    )


def accuracy(params: Params, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images whose largest logit is the label's: float32 [N, 1, S, S], int [N] -> 0 to 1."""
    return float(np.mean(np.asarray(_logits()(params, images)).argmax(1) == labels))


@cache
def _logits() -> Callable[..., jax.Array]:
    return jax.jit(cnn.logits)


def compare_modes(
    data: Data,
    optimizer: optax.GradientTransformation | None = None,
    *,
    batch_size: int = 32,
    rounds: int = 21,
    seed: int = 0,
) -> Comparison:
    """Time one step in all modes side by side, on one batch; each mode trains parameters of its own.

    Args:
        data: As for `train`.
        optimizer: An optimiser of optax; `adam` if left out.
        batch_size: Images a step.
        rounds: How often each is timed, at least 21.
        seed: Of the weights at the beginning and of the batch.

    Raises:
        MeasureError: There are too few rounds.
    """
    optimizer = adam(10_000) if optimizer is None else optimizer
    batch = next(_batches(data, 1, batch_size, seed))

    def stepping(mode: Mode) -> Callable[[], jax.Array]:
        params = cnn.init(seed, size=batch[0].shape[-1])
        now: list[Any] = [params, optimizer.init(params)]
        step = make_step(optimizer, loss, mode)

        def once() -> jax.Array:
            now[0], now[1], value = jax.block_until_ready(step(*now, *batch))
            return value

        return once

    return compare({mode: stepping(mode) for mode in MODES}, rounds=rounds)
