"""A small network for the digits: three convolutions and a linear layer, as pure functions of a dict of arrays.

The operators come from a namespace, so that the same network runs with JAX and without it: trained with JAX, graded in
NumPy. JAX is imported only where it is used.

>>> from mlhood.jaxlab.training import cnn
>>> from mlhood.jaxlab.operators import no_jax
>>> params = cnn.init(seed=0)
>>> jax.jit(cnn.logits)(params, x)  # x: float32 [N, 1, 32, 32], as `mlhood.models.digits` returns them
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
_DOWNSAMPLING = 2 ** len(CONVOLUTIONS)


def init(seed: int = 0, *, size: int = 32, classes: int = 10) -> dict[str, jax.Array]:
    """Return random initial parameters; 19,178 numbers for the digits.

    Weights are normal with variance 2 / inputs (K. He et al., "Delving deep into rectifiers", ICCV 2015, equation 10),
    biases 0.

    Args:
        seed: Determines the weights.
        size: Height and width of the images.
        classes: Number of logits.

    Returns:
        float32 arrays by torch's names: "conv1.weight" [16, 1, 3, 3], "conv1.bias" [16], ..., "fc.weight" [classes,
        inputs], "fc.bias" [classes].
    """
    import jax.numpy as jnp

    inputs = _CHANNELS[-1] * math.ceil(size / _DOWNSAMPLING) ** 2
    shapes: dict[str, tuple[int, ...]] = {}
    for name, channels, filters in zip(CONVOLUTIONS, _CHANNELS, _CHANNELS[1:], strict=False):
        shapes[name] = (filters, channels, 3, 3)
    shapes["fc"] = (classes, inputs)
    rng = np.random.default_rng(seed)  # JAX's own generator takes a second to compile for each shape
    params = {}
    for name, shape in shapes.items():
        weight = rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
        params[f"{name}.weight"] = jnp.array(weight)  # a copy, which can be donated
        params[f"{name}.bias"] = jnp.zeros(shape[0])
    return params


def logits(params: Mapping[str, Any], x: Any, ops: Any = None) -> Any:
    """Run the network.

    Args:
        params: Parameters as from `init`: arrays that the operators accept.
        x: float32 [N, 1, S, S].
        ops: A namespace with `conv2d`, `relu` and `dense`; `mlhood.jaxlab.operators.with_jax` if omitted.

    Returns:
        float32 [N, classes].

    Raises:
        XlaError: The images do not have the size that the parameters are for.
    """
    if ops is None:
        from mlhood.jaxlab.operators import with_jax as ops
    _check(params, x)
    for name in CONVOLUTIONS:
        x = ops.relu(ops.conv2d(x, params[f"{name}.weight"], params[f"{name}.bias"], stride=2, padding=1))
    return ops.dense(x.reshape(len(x), -1), params["fc.weight"], params["fc.bias"])


def _check(params: Mapping[str, Any], x: Any) -> None:
    inputs = params["fc.weight"].shape[1]
    sizes = [math.ceil(size / _DOWNSAMPLING) for size in x.shape[2:]]
    if x.ndim != 4 or x.shape[1] != _CHANNELS[0] or _CHANNELS[-1] * math.prod(sizes) != inputs:
        side = _DOWNSAMPLING * math.isqrt(inputs // _CHANNELS[-1])
        raise XlaError(
            "the images do not have the network's input shape",
            where="the digits' network",
            expected=f"[N, {_CHANNELS[0]}, {side}, {side}]",
            got=list(x.shape),
        )
