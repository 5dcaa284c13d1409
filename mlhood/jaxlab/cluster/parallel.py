"""A network on many devices: data parallel, tensor parallel, or both, depending on the mesh.

Two layers, relu(x @ w1 + b1) @ w2 + b2, and the mean cross-entropy over a batch. The batch is sharded over the mesh
axis "data"; every row of devices holds all weights, and gradients are summed over the rows. Columns of w1 and rows of
w2 are sharded over "model": a device computes some of the hidden units and from them a partial sum of every output, and
one all-reduce along the row adds these up (M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language
models using model parallelism", arXiv:1909.08053, section 3).

Implemented twice: `by_jit` states the shardings of arguments and results and leaves the rest to XLA; `by_shard_map` is
the program of one device with explicit collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
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
    return _cross_entropy(hidden @ params["w2"] + params["b2"], y)


def _cross_entropy(logits: jax.Array, y: Any) -> jax.Array:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


def by_jit(mesh: Mesh) -> Gradient:
    """Return a function of (params, x, y): the loss over the batch and its gradient, sharded as in `SPECS`.

    Args:
        mesh: With axes "data" and "model"; either may have one device.
    """
    weights = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    batch, replicated = NamedSharding(mesh, BATCH), NamedSharding(mesh, P())
    return jax.jit(jax.value_and_grad(loss), in_shardings=(weights, batch, batch), out_shardings=(replicated, weights))


def by_shard_map(mesh: Mesh) -> Gradient:
    """Return the same as `by_jit`, from the program of one device.

    JAX sums the gradient of a replicated weight over the devices: that is the transpose of broadcasting it to them
    (jax.shard_map, `check_vma`).
    """

    def local_loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
        logits = lax.psum(hidden @ params["w2"], "model") + params["b2"]
        return lax.pmean(_cross_entropy(logits, y), "data")

    local = jax.value_and_grad(local_loss)
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(SPECS, BATCH, BATCH), out_specs=(P(), SPECS)))


def shard_inputs(mesh: Mesh, params: Params, x: np.ndarray, y: np.ndarray) -> tuple[Params, jax.Array, jax.Array]:
    """Shard weights and a batch over a mesh; each process has all of them and keeps its devices' shards.

    Raises:
        ClusterError: They cannot be divided into equal shards.
    """
    return shard(mesh, params, SPECS), *shard_batch(mesh, x, y)


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


def predicted_bytes(mesh: Mapping[str, int], params: Params, batch: int) -> dict[str, int]:
    """Predict the bytes that a device contributes to the all-reduces of one gradient, by mesh axis.

    Along "model": its partial sum of every output. Along "data": the loss and the gradient of the weights that it
    holds. An axis of one device has none.

    Args:
        mesh: Devices by axis: a mesh's `shape`.
        params: Weights as from `init`.
        batch: Examples in the global batch.
    """
    rows, columns = mesh.get("data", 1), mesh.get("model", 1)
    outputs = batch // rows * params["w2"].shape[1]
    held = sum(weight.size // (columns if "model" in SPECS[name] else 1) for name, weight in params.items())
    return {"data": 4 * (held + 1) if rows > 1 else 0, "model": 4 * outputs if columns > 1 else 0}
