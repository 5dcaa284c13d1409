"""A network on many devices: data parallel, tensor parallel, or both, depending on the mesh.

Two layers, relu(x @ w1 + b1) @ w2 + b2, and the mean cross-entropy over a batch. The batch is sharded over the mesh
axis "data"; every row of devices holds all weights, and gradients are summed over the rows. Columns of w1 and rows of
w2 are sharded over "model": a device computes some of the hidden units and from them a partial sum of every output, and
one all-reduce along the row adds these up (M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language
models using model parallelism", arXiv:1909.08053, section 3).

`by_jit` states the shardings of arguments and results and leaves the rest to XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mlhood.jaxlab.cluster.mesh import shard

Params = dict[str, Any]
Gradient = Callable[[Params, Any, Any], tuple[jax.Array, Params]]
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}
BATCH = P("data")


def init(seed: int, inputs: int = 16, hidden: int = 32, outputs: int = 10) -> Params:
    """Return random weights: float32 w1 [inputs, hidden], b1 [hidden], w2 [hidden, outputs], b2 [outputs], in NumPy.

    Normal with variance 2 / inputs of the layer (K. He et al., "Delving deep into rectifiers", ICCV 2015, equation 10).
    """
    rng = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)

    return {
        "w1": weight(inputs, hidden),
        "b1": np.zeros(hidden, np.float32),
        "w2": weight(hidden, outputs),
        "b2": np.zeros(outputs, np.float32),
    }


def loss(params: Params, x: Any, y: Any) -> jax.Array:
    """Return the mean cross-entropy of float32 [N, inputs] and integer labels [N], a float32 scalar."""
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    logs = jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -jnp.mean(jnp.take_along_axis(logs, y[:, None], axis=1))


def by_jit(mesh: Mesh) -> Gradient:
    """Return a function of (params, x, y): the loss over the batch and its gradient, sharded as in `SPECS`.

    Args:
        mesh: With axes "data" and "model"; either may have one device.
    """
    weights = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    batch, replicated = NamedSharding(mesh, BATCH), NamedSharding(mesh, P())
    return jax.jit(jax.value_and_grad(loss), in_shardings=(weights, batch, batch), out_shardings=(replicated, weights))


def shard_batch(mesh: Mesh, x: np.ndarray, y: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Shard the examples of a batch over the axis "data".

    Raises:
        ClusterError: They cannot be divided into equal shards.
    """
    batch = shard(mesh, {"x": x, "y": y}, {"x": BATCH, "y": BATCH})
    return batch["x"], batch["y"]


@jax.jit
def momentum(
    params: Params, velocity: Params, gradient: Params, learning_rate: float = 0.1, decay: float = 0.9
) -> tuple[Params, Params]:
    """Take a step of gradient descent: velocity = decay * velocity + gradient, params -= learning_rate * velocity.

    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the form of torch's SGD.
    """
    velocity = jax.tree.map(lambda v, g: decay * v + g, velocity, gradient)
    return jax.tree.map(lambda p, v: p - learning_rate * v, params, velocity), velocity
