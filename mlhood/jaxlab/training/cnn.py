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

if TYPE_CHECKING:
    import jax

_SHAPES = {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "conv3": (32, 32, 3, 3), "fc": (10, 32 * 4 * 4)}
CONVOLUTIONS = ("conv1", "conv2", "conv3")  # stride 2, padding 1: each halves height and width


def init(seed: int = 0) -> dict[str, jax.Array]:
    """Return random initial parameters: 19,178 numbers.

    Weights are normal with variance 2 / inputs (K. He et al., "Delving deep into rectifiers", ICCV 2015, equation 10),
    biases 0.

    Args:
        seed: Determines the weights.

    Returns:
        float32 arrays by torch's names: "conv1.weight" [16, 1, 3, 3], "conv1.bias" [16], ..., "fc.weight" [10, 512],
        "fc.bias" [10].
    """
    import jax.numpy as jnp

    rng = np.random.default_rng(seed)  # JAX's own generator takes a second to compile for each shape
    params = {}
    for name, shape in _SHAPES.items():
        weight = rng.standard_normal(shape, np.float32) * np.float32(math.sqrt(2 / math.prod(shape[1:])))
        params[f"{name}.weight"] = jnp.array(weight)  # a copy, which can be donated
        params[f"{name}.bias"] = jnp.zeros(shape[0])
    return params


def logits(params: Mapping[str, Any], x: Any, ops: Any = None) -> Any:
    """Run the network.

    Args:
        params: Parameters as from `init`: arrays that the operators accept.
        x: float32 [N, 1, 32, 32].
        ops: A namespace with `conv2d`, `relu` and `dense`; `mlhood.jaxlab.operators.with_jax` if omitted.

    Returns:
        float32 [N, 10].

    Raises:
        KernelError: The images have another number of axes or of channels.
    """
    if ops is None:
        from mlhood.jaxlab.operators import with_jax as ops
    for name in CONVOLUTIONS:
        x = ops.relu(ops.conv2d(x, params[f"{name}.weight"], params[f"{name}.bias"], stride=2, padding=1))
    return ops.dense(x.reshape(len(x), -1), params["fc.weight"], params["fc.bias"])
