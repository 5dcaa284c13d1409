"""A small network for the digits: three convolutions and a linear layer, as pure functions over a dict of arrays.

The operators come from a namespace, so that the same network runs with JAX and without: trained by the one, judged by
the other. JAX is loaded only where it is used.

>>> from mlhood.jaxlab.training import cnn
>>> from mlhood.jaxlab.operators import no_jax
>>> params = cnn.init(seed=0)
>>> jax.jit(cnn.logits)(params, x)  # x: float32 [N, 1, 32, 32], as `mlhood.models.digits` gives them
>>> cnn.logits({name: np.asarray(value) for name, value in params.items()}, x, no_jax)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.errors import XlaError

if TYPE_CHECKING:
    import jax

CONVOLUTIONS = ("conv1", "conv2", "conv3")  # 3x3, stride 2, padding 1: each halves height and width
_CHANNELS = (1, 16, 32, 32)
_SHRINKS = 2 ** len(CONVOLUTIONS)


def init(seed: int = 0, *, size: int = 32, classes: int = 10) -> dict[str, jax.Array]:
    """Draw weights for a beginning; 19,178 numbers for the digits.

    Weights are normal with variance 2 / inputs (K. He et al., "Delving deep into rectifiers", ICCV 2015, equation 10),
    biases 0.

    Args:
        seed: Same seed, same weights.
        size: Height and width of the images.
        classes: Number of logits.

    Returns:
        float32 arrays by torch's names: "conv1.weight" [16, 1, 3, 3], "conv1.bias" [16], ..., "fc.weight" [classes,
        inputs], "fc.bias" [classes].
    """
    import jax.numpy as jnp

    inputs = _CHANNELS[-1] * math.ceil(size / _SHRINKS) ** 2
    shapes = {
        name: (_CHANNELS[i + 1], _CHANNELS[i], 3, 3) for i, name in enumerate(CONVOLUTIONS)
    } | {"fc": (classes, inputs)}  # fmt: skip
    rng = np.random.default_rng(seed)  # JAX's own generator compiles for a second, for each shape
    params = {}
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
        params[f"{name}.weight"] = jnp.array(weight)  # a copy, which may be donated
        params[f"{name}.bias"] = jnp.zeros(shape[0])
    return params


def logits(params: Mapping[str, Any], x: Any, ops: Any = None) -> Any:
    """Run the network.

    Args:
        params: What `init` gives: arrays of the kind that the operators take.
        x: float32 [N, 1, S, S].
        ops: Where `conv2d`, `relu` and `dense` are: `mlhood.jaxlab.operators.with_jax`, unless it is given.

    Returns:
        float32 [N, classes].

    Raises:
        XlaError: The images are not of the size that the parameters are for.
    """
    if ops is None:
        from mlhood.jaxlab.operators import with_jax as ops
    _check(params, x)
    for name in CONVOLUTIONS:
        x = ops.relu(ops.conv2d(x, params[f"{name}.weight"], params[f"{name}.bias"], stride=2, padding=1))
    return ops.dense(x.reshape(len(x), -1), params["fc.weight"], params["fc.bias"])


def _check(params: Mapping[str, Any], x: Any) -> None:
    inputs = params["fc.weight"].shape[1]
    places = [math.ceil(size / _SHRINKS) for size in x.shape[2:]]
    if x.ndim != 4 or x.shape[1] != _CHANNELS[0] or _CHANNELS[-1] * math.prod(places) != inputs:
        side = _SHRINKS * math.isqrt(inputs // _CHANNELS[-1])
        raise XlaError(
            "the network does not take these images",
            where="the digits' network",
            expected=f"[N, {_CHANNELS[0]}, {side}, {side}]",
            got=list(x.shape),
        )
