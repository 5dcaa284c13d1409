"""A program for any number of processes: trains two layers on random data, and resumes from its checkpoints.

mlhood cluster -n 2 -- python -m mlhood.jaxlab.cluster.program --steps 8 --out trained.npz
mlhood cluster -n 4 -- python -m mlhood.jaxlab.cluster.program --model 2 --checkpoints saved --out trained.npz

The result does not depend on the number of processes, up to the order of summation.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.processes import initialize

EXAMPLES = 32
Params = dict[str, Any]
Gradient = Callable[[Params, Any, Any], tuple[jax.Array, Params]]
SPECS = {"w1": P(None, "model"), "b1": P("model"), "w2": P("model", None), "b2": P()}
BATCH = P("data")
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

    All arrays are NumPy's.
    """
    x = np.random.default_rng(seed).standard_normal((EXAMPLES, INPUTS)).astype(np.float32)
    classifier = np.random.default_rng(0).standard_normal((INPUTS, OUTPUTS)).astype(np.float32)
    return Data(init(seed), x, np.argmax(x @ classifier, axis=1).astype(np.int32))


def train(
    mesh: Mesh,
    seed: int,
    steps: int,
    *,
    checkpoints: Path | None = None,
    every: int = 2,
    report: Callable[[str], None] = lambda line: None,
    before_step: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """Train on a new random batch each step, determined by the seed and the step's number.

    Args:
        mesh: With axes "data" and "model".
        seed: Seed of weights and data.
        steps: Total number of steps, including those before an interruption.
        checkpoints: A folder to resume from and to save to; None for no checkpoints.
        every: Steps between checkpoints.
        report: Called with a line about each step.
        before_step: Called with each step's number before the step.

    Returns:
        The weights, sharded over the mesh.

    Raises:
        ClusterError: A checkpoint cannot be read or written.
    """
    gradient = by_jit(mesh)
    params = data(seed).params
    state = {
        "params": shard(mesh, params, SPECS),
        "velocity": shard(mesh, {name: np.zeros_like(w) for name, w in params.items()}, SPECS),
    }

    manager = contextlib.nullcontext()
    if checkpoints is not None:
        from mlhood.jaxlab.cluster.checkpoint import Checkpoints

        manager = Checkpoints(checkpoints, every=every)
    with manager as saved:
        done, state = saved.resume(state) if saved else (0, state)
        if done:
            report(f"resumed after step {done}")
        for step in range(done, steps):
            before_step(step)
            _, x, y = data(seed + step)
            value, gradients = gradient(state["params"], *shard_batch(mesh, x, y))
            params, velocity = momentum(state["params"], state["velocity"], gradients)
            state = {"params": params, "velocity": velocity}
            report(f"step {step + 1} of {steps}: loss {float(value):.6f}")
            if saved:
                saved.save(step + 1, state)
    return state["params"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the options of the command line, as one of the cluster's processes.

    Raises:
        ClusterError: The number of devices is not a multiple of `--model`.
    """
    options = _options(arguments)
    initialize()
    if jax.device_count() % options.model:
        expected = f"a multiple of {options.model} devices"
        raise ClusterError("the devices do not form such a mesh", expected=expected, got=jax.device_count())
    first = jax.process_index() == 0
    params = train(
        mesh(data=jax.device_count() // options.model, model=options.model),
        options.seed,
        options.steps,
        checkpoints=options.checkpoints,
        every=options.every,
        report=(lambda line: print(line, flush=True)) if first else (lambda line: None),
        before_step=lambda step: _inject_failure(options.fail, jax.process_index(), step),
    )
    gathered: dict[str, Any] = {
        name: np.asarray(process_allgather(weight, tiled=True)) for name, weight in params.items()
    }
    if first and options.out is not None:
        np.savez(options.out, **gathered)


def _inject_failure(fail: str, process: int, step: int) -> None:
    """Kill this process at the given step, as if its machine had failed."""
    if fail == f"{process}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mlhood.jaxlab.cluster.program", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and data")
    parser.add_argument("--steps", type=int, default=6, help="total number of steps")
    parser.add_argument("--model", type=int, default=1, help="devices of the mesh axis that shards the weights")
    parser.add_argument("--checkpoints", type=Path, help="folder to resume from and to save to")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--fail", default="", metavar="PROCESS:STEP", help="test: kill this process at this step")
    parser.add_argument("--out", type=Path, help="write the weights to this .npz file")
    return parser.parse_args(arguments)


# -- the network: data parallel, tensor parallel, or both, depending on the mesh
#
# Two layers, relu(x @ w1 + b1) @ w2 + b2, and the mean cross-entropy over a batch. The batch is sharded over the mesh
# axis "data"; every row of devices holds all weights, and gradients are summed over the rows. Columns of w1 and rows
# of w2 are sharded over "model": a device computes some of the hidden units and from them a partial sum of every
# output, and one all-reduce along the row adds these up (M. Shoeybi et al., "Megatron-LM: training multi-billion
# parameter language models using model parallelism", arXiv:1909.08053, section 3).


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

    It states the shardings of arguments and results and leaves the rest to XLA.

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


if __name__ == "__main__":
    main()
