"""A program for any number of processes: trains two layers on data drawn from a seed, and resumes where it was broken.

mlhood cluster -n 2 -- python -m mlhood.jaxlab.cluster.program --steps 8 --out trained.npz
mlhood cluster -n 4 -- python -m mlhood.jaxlab.cluster.program --model 2 --checkpoints saved --out trained.npz

What it trains does not depend on how many processes there are, up to the order in which numbers are added.
"""

from __future__ import annotations

import argparse
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
from mlhood.jaxlab.cluster import mesh as meshes
from mlhood.jaxlab.cluster import parallel
from mlhood.jaxlab.cluster.parallel import loss as loss
from mlhood.jaxlab.cluster.processes import initialize

INPUTS, CLASSES, EXAMPLES = 16, 10, 32


class Data(NamedTuple):
    """Weights and a batch, the same for the same seed in every process; `loss(*data(seed))` is their loss."""

    params: dict[str, Any]
    """float32 w1 [16, 32], b1 [32], w2 [32, 10], b2 [10]."""
    x: np.ndarray
    """float32 [32, 16]."""
    y: np.ndarray
    """int32 [32], 0 to 9."""


def data(seed: int) -> Data:
    """Draw weights, and a batch in which the class follows from the numbers: the largest of ten mixtures of them.

    The mixtures are the same for all seeds. All arrays are NumPy's.
    """
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((EXAMPLES, INPUTS)).astype(np.float32)
    mixtures = np.random.default_rng(0).standard_normal((INPUTS, CLASSES)).astype(np.float32)
    return Data(parallel.init(seed, INPUTS, outputs=CLASSES), x, np.argmax(x @ mixtures, axis=1).astype(np.int32))


def train(
    mesh: Mesh,
    seed: int,
    steps: int,
    *,
    checkpoints: Path | None = None,
    every: int = 2,
    report: Callable[[str], None] = lambda line: None,
    before: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """Train on a new batch each step, drawn from the seed and the step's number.

    Args:
        mesh: With axes "data" and "model".
        seed: Of weights and data.
        steps: How many in all, those before a break included.
        checkpoints: A folder to resume from and to save in; None for neither.
        every: Steps between checkpoints.
        report: Called with a line about each step.
        before: Called with each step's number before it is done.

    Returns:
        The weights, laid on the mesh.

    Raises:
        ClusterError: A checkpoint cannot be read or written.
    """
    gradient = parallel.by_jit(mesh)
    params = data(seed).params
    state = {
        "params": meshes.lay(mesh, params, parallel.SPECS),
        "velocity": meshes.lay(mesh, {name: np.zeros_like(one) for name, one in params.items()}, parallel.SPECS),
    }

    def one(state: dict[str, Any], step: int) -> dict[str, Any]:
        before(step)
        _, x, y = data(seed + step)
        value, change = gradient(state["params"], *parallel.lay_batch(mesh, x, y))
        new, velocity = parallel.momentum(state["params"], state["velocity"], change)
        report(f"step {step + 1} of {steps}: loss {float(value):.6f}")
        return {"params": new, "velocity": velocity}

    if checkpoints is None:
        for step in range(steps):
            state = one(state, step)
        return state["params"]
    from mlhood.jaxlab.cluster.checkpoint import Checkpoints

    with Checkpoints(checkpoints, every=every) as saved:
        first, state = saved.resume(state)
        if first:
            report(f"resumed after step {first}")
        for step in range(first, steps):
            state = one(state, step)
            saved.save(step + 1, state)
    return state["params"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as the command line says, as one of the processes that the launcher or the cluster has started.

    Raises:
        ClusterError: The devices do not fall into such a mesh.
    """
    options = _options(arguments)
    initialize()
    if jax.device_count() % options.model:
        raise ClusterError(
            "the devices do not fall into such a mesh",
            expected=f"a multiple of {options.model} devices",
            got=jax.device_count(),
        )
    first = jax.process_index() == 0
    params = train(
        meshes.mesh(data=jax.device_count() // options.model, model=options.model),
        options.seed,
        options.steps,
        checkpoints=options.checkpoints,
        every=options.every,
        report=(lambda line: print(line, flush=True)) if first else (lambda line: None),
        before=lambda step: _drill(options.fail, jax.process_index(), step),
    )
    whole = everywhere(params)
    if first and options.out is not None:
        np.savez(options.out, **whole)


def everywhere(params: dict[str, Any]) -> dict[str, Any]:
    """Return arrays that lie on all processes' devices as NumPy arrays, whole, in every process."""
    return {name: np.asarray(process_allgather(one, tiled=True)) for name, one in params.items()}


def _drill(fail: str, process: int, step: int) -> None:
    """End this process as if its machine had failed."""
    if fail == f"{process}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mlhood.jaxlab.cluster.program", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of weights and data")
    parser.add_argument("--steps", type=int, default=6, help="in all")
    parser.add_argument("--model", type=int, default=1, help="devices that share the weights; the rest share the data")
    parser.add_argument("--checkpoints", type=Path, help="folder to resume from and to save in")
    parser.add_argument("--every", type=int, default=2, help="steps between checkpoints")
    parser.add_argument("--fail", default="", metavar="PROCESS:STEP", help="a drill: this process dies at this step")
    parser.add_argument("--out", type=Path, help="write the weights into this .npz")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
