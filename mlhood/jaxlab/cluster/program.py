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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import parallel
from mlhood.jaxlab.cluster.parallel import loss as loss
from mlhood.jaxlab.cluster.processes import initialize

EXAMPLES = 32


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
    x = np.random.default_rng(seed).standard_normal((EXAMPLES, parallel.INPUTS)).astype(np.float32)
    classifier = np.random.default_rng(0).standard_normal((parallel.INPUTS, parallel.OUTPUTS)).astype(np.float32)
    return Data(parallel.init(seed), x, np.argmax(x @ classifier, axis=1).astype(np.int32))


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
    gradient = parallel.by_jit(mesh)
    params = data(seed).params
    state = {
        "params": parallel.shard(mesh, params, parallel.SPECS),
        "velocity": parallel.shard(mesh, {name: np.zeros_like(w) for name, w in params.items()}, parallel.SPECS),
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
            value, gradients = gradient(state["params"], *parallel.shard_batch(mesh, x, y))
            params, velocity = parallel.momentum(state["params"], state["velocity"], gradients)
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
        parallel.mesh(data=jax.device_count() // options.model, model=options.model),
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


if __name__ == "__main__":
    main()
