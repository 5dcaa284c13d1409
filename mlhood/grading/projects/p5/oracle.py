"""What needs JAX on our side: worked out in a process apart, as the one that judges has none."""

from __future__ import annotations

from typing import Any

import numpy as np


def step_gradient(seed: int) -> dict[str, Any]:
    """Return the gradient that a script `cluster_step.py SEED OUT` has to write, from one process.

    Args:
        seed: Of weights and data, `program.data(seed)`; the loss is `program.loss`.
    """
    import jax

    from mlhood.jaxlab.cluster import program

    found = jax.grad(program.loss)(*program.data(seed))
    return {name: np.asarray(value) for name, value in found.items()}
