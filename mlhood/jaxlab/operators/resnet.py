"""ResNet in JAX: pure functions of a tree of parameters, which takes the weights of the course's torch models.

>>> from mlhood.models import resnet18
>>> from mlhood.jaxlab.operators.resnet import from_torch, logits
>>> params = from_torch(resnet18().eval())
>>> jax.jit(logits)(params, x)  # x: float32 [N, 3, 224, 224]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mlhood.jaxlab.operators import network, with_jax
from mlhood.jaxlab.operators.network import Params
from mlhood.jaxlab.operators.with_jax import conv2d

__all__ = ["conv2d", "from_torch", "logits"]


def from_torch(model: Any) -> Params:
    """Return a torch ResNet's weights as a tree of JAX arrays.

    Args:
        model: A `mlhood.models.ResNet`, another module with torchvision's parameter names, or its state dict.

    Returns:
        Nested dictionaries, as `network.tree` builds them.
    """
    params = network.tree(model if isinstance(model, Mapping) else model.state_dict())
    return jax.tree.map(lambda value: jnp.array(value.numpy(force=True)), params)


def logits(params: Params, x: jax.Array) -> jax.Array:
    """Run a ResNet in inference mode, with `from_torch`'s parameters: float32 [N, 3, H, W] -> [N, classes].

    Raises:
        KernelError: x does not fit the first convolution.
    """
    return network.forward(with_jax, params, x)
