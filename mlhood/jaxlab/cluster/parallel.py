"""A network on many devices: data parallel, tensor parallel, or both, depending on the mesh.

Two layers, relu(x @ w1 + b1) @ w2 + b2, and the mean cross-entropy over a batch. The batch is sharded over the mesh
axis "data"; every row of devices holds all weights, and gradients are summed over the rows. Columns of w1 and rows of
w2 are sharded over "model": a device computes some of the hidden units and from them a partial sum of every output, and
one all-reduce along the row adds these up (M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language
models using model parallelism", arXiv:1909.08053, section 3).

`by_jit` states the shardings of arguments and results and leaves the rest to XLA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Params = dict[str, Any]
Gradient = Callable[[Params, Any, Any], tuple[jax.Array, Params]]
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}
BATCH = P("data")
INPUTS, HIDDEN, OUTPUTS = 16, 32, 10


def mesh(data: int, model: int) -> Mesh:
    """Return a mesh of so many devices along the axes "data" and "model".

    Devices along "model" are adjacent in the list of devices, hence in one process where there are several. XLA
    propagates the shardings of arguments and results to the values in between.

    Raises:
        ValueError: There are too few devices.
    """
    return jax.make_mesh((data, model), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))


def shard(mesh: Mesh, arrays: Mapping[str, np.ndarray], specs: Mapping[str, P]) -> dict[str, jax.Array]:
    """Shard arrays over a mesh; each process provides the shards of its own devices.

    Args:
        mesh: The devices.
        arrays: By name, the same in every process.
        specs: The partition of each array; arrays without one are replicated.

    Raises:
        ValueError: The size of an array is not divisible by that of its mesh axis.
    """
    shardings = {name: NamedSharding(mesh, specs.get(name, P())) for name in arrays}
    return {
        name: jax.make_array_from_callback(array.shape, shardings[name], array.__getitem__)
        for name, array in arrays.items()
    }


def init(seed: int) -> Params:
    """Return random weights: float32 w1 [16, 32], b1 [32], w2 [32, 10], b2 [10], in NumPy.

    Normal with variance 2 / inputs of the layer (K. He et al., "Delving deep into rectifiers", ICCV 2015, equation 10).
    """
    rng = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)

    return {
        "w1": weight(INPUTS, HIDDEN),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": weight(HIDDEN, OUTPUTS),
        "b2": np.zeros(OUTPUTS, np.float32),
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
        ValueError: They cannot be divided into equal shards.
    """
    batch = shard(mesh, {"x": x, "y": y}, {"x": BATCH, "y": BATCH})
    return batch["x"], batch["y"]


@jax.jit
def momentum(params: Params, velocity: Params, gradient: Params) -> tuple[Params, Params]:
    """Take a step of gradient descent: velocity = 0.9 * velocity + gradient, params -= 0.1 * velocity.

    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the form of torch's SGD.
    """
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
    return jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity), velocity
