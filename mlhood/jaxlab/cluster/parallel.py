"""One network trained on many devices: its data split, its weights split, or both, as the mesh has it.

Two layers, relu(x @ w1 + b1) @ w2 + b2, and the mean cross-entropy over a batch. Along the mesh's axis "data" lie parts
of the batch; every row of devices holds all weights, and gradients are summed over the rows. Along "model" lie columns
of w1 and rows of w2: a device computes some of the hidden values and with them a part of every result, and one sum over
the row gives the results (M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model
parallelism", arXiv:1909.08053, section 3).

The same is written twice: `by_jit` says how arguments and results are split and leaves the rest to XLA; `by_shard_map`
is what one device does, with its sums over the others spelled out.
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

from mlhood.jaxlab.cluster.mesh import lay

Params = dict[str, Any]
Gradient = Callable[[Params, Any, Any], tuple[jax.Array, Params]]
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}
BATCH = P("data")


def init(seed: int, inputs: int = 16, hidden: int = 32, outputs: int = 10) -> Params:
    """Return weights: float32 w1 [inputs, hidden], b1 [hidden], w2 [hidden, outputs], b2 [outputs], in NumPy.

    Normal with variance 2 / inputs of the layer (K. He et al., "Delving deep into rectifiers", ICCV 2015, equation 10).
    """
    draw = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> np.ndarray:
        return (draw.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)

    return {
        "w1": weight(inputs, hidden),
        "b1": np.zeros(hidden, np.float32),
        "w2": weight(hidden, outputs),
        "b2": np.zeros(outputs, np.float32),
    }


def loss(params: Params, x: Any, y: Any) -> jax.Array:
    """Return the mean cross-entropy of float32 [N, inputs] and whole numbers [N], as a float32 number."""
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return _cross_entropy(hidden @ params["w2"] + params["b2"], y)


def _cross_entropy(logits: jax.Array, y: Any) -> jax.Array:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


def by_jit(mesh: Mesh) -> Gradient:
    """Return a function of (params, x, y): the loss over the whole batch and its gradient, split as `SPECS` says.

    Args:
        mesh: With axes "data" and "model"; one of them may have one device.
    """
    weights, batch, everywhere = shardings(mesh)
    return jax.jit(jax.value_and_grad(loss), in_shardings=(weights, batch, batch), out_shardings=(everywhere, weights))


def by_shard_map(mesh: Mesh) -> Gradient:
    """Return the same as `by_jit`, from what one device does with its parts.

    The gradient of a weight that several devices share is summed over them by JAX: it is the transpose of giving it
    to all of them (jax.shard_map, `check_vma`).
    """

    def one(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
        logits = lax.psum(hidden @ params["w2"], "model") + params["b2"]
        return lax.pmean(_cross_entropy(logits, y), "data")

    return jax.jit(
        jax.shard_map(jax.value_and_grad(one), mesh=mesh, in_specs=(SPECS, BATCH, BATCH), out_specs=(P(), SPECS))
    )


def shardings(mesh: Mesh) -> tuple[dict[str, NamedSharding], NamedSharding, NamedSharding]:
    """Return how the weights, the batch, and what all devices hold are laid on a mesh."""
    weights = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    return weights, NamedSharding(mesh, BATCH), NamedSharding(mesh, P())


def laid(mesh: Mesh, params: Params, x: np.ndarray, y: np.ndarray) -> tuple[Params, jax.Array, jax.Array]:
    """Lay weights and a batch on a mesh; each process holds all of them and keeps its devices' parts.

    Raises:
        ClusterError: They do not fall into equal parts.
    """
    return lay(mesh, params, SPECS), *lay_batch(mesh, x, y)


def lay_batch(mesh: Mesh, x: np.ndarray, y: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Lay a batch on a mesh, its examples along "data".

    Raises:
        ClusterError: They do not fall into equal parts.
    """
    batch = lay(mesh, {"x": x, "y": y}, {"x": BATCH, "y": BATCH})
    return batch["x"], batch["y"]


@jax.jit
def momentum(
    params: Params, velocity: Params, gradient: Params, rate: float = 0.1, kept: float = 0.9
) -> tuple[Params, Params]:
    """Take a step of gradient descent with momentum: velocity = kept * velocity + gradient, params -= rate * velocity.

    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, as torch's SGD writes it.
    """
    velocity = jax.tree.map(lambda v, g: kept * v + g, velocity, gradient)
    return jax.tree.map(lambda p, v: p - rate * v, params, velocity), velocity


def expected(mesh: Mapping[str, int], params: Params, batch: int) -> dict[str, int]:
    """Predict what a device puts into the all-reduces of one gradient, in bytes by the axis that they go along.

    Along "model": its part of every result. Along "data": the loss and the gradient of the weights that it holds.
    An axis of one device has none.

    Args:
        mesh: Devices by axis: a mesh's `shape`.
        params: Weights as `init` gives.
        batch: Examples in all.
    """
    rows, columns = mesh.get("data", 1), mesh.get("model", 1)
    results = batch // rows * params["w2"].shape[1]
    shares = {name: columns if "model" in SPECS[name] else 1 for name in params}
    held = sum(one.size // shares[name] for name, one in params.items())
    return {"data": 4 * (held + 1) if rows > 1 else 0, "model": 4 * results if columns > 1 else 0}
