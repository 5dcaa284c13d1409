"""The data and the loss of the step that P5.11 runs as several processes: two layers on random data.

>>> loss(*data(seed=7))  # the same in every process
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

EXAMPLES = 32
INPUTS, HIDDEN, OUTPUTS = 16, 32, 10


class Data(NamedTuple):
    """Weights and a batch, determined by the seed in every process; `loss(*data(seed))` is their loss."""

    params: dict[str, Any]
    """float32 w1 [16, 32], b1 [32], w2 [32, 10], b2 [10]."""
    x: np.ndarray
    """float32 [32, 16]."""
    y: np.ndarray
    """int32 [32], 0 to 9."""


def data(seed: int) -> Data:
    """Return random weights, and a random batch labelled by a linear classifier that is the same for all seeds.

    All arrays are NumPy's. Weights are normal with variance 2 / inputs of the layer (K. He et al., "Delving deep into
    rectifiers", ICCV 2015, equation 10), biases 0.
    """
    rng = np.random.default_rng(seed)
    w1, w2 = (
        (rng.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(np.float32)
        for shape in ((INPUTS, HIDDEN), (HIDDEN, OUTPUTS))
    )
    params = {"w1": w1, "b1": np.zeros(HIDDEN, np.float32), "w2": w2, "b2": np.zeros(OUTPUTS, np.float32)}
    x = np.random.default_rng(seed).standard_normal((EXAMPLES, INPUTS)).astype(np.float32)
    classifier = np.random.default_rng(0).standard_normal((INPUTS, OUTPUTS)).astype(np.float32)
    return Data(params, x, np.argmax(x @ classifier, axis=1).astype(np.int32))


def loss(params: dict[str, Any], x: Any, y: Any) -> jax.Array:
    """Return the mean cross-entropy of float32 [N, inputs] and integer labels [N], a float32 scalar."""
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    logs = jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -jnp.mean(jnp.take_along_axis(logs, y[:, None], axis=1))
