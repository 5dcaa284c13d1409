"""Norms of per-example gradients, and clipping each one before the mean.

The gradient of a mean loss mixes all examples. To bound the influence of a single one, each example's gradient is
needed: M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1 (here without its noise).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


def norms(gradients: Tree) -> jax.Array:
    """Return each example's Euclidean norm over all leaves: [N, ...] -> [N]."""
    squares = [jnp.sum(jnp.square(leaf), tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(gradients)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def clipped(gradients: Tree, limit: float) -> Tree:
    """Scale each example's gradient down to a norm of at most `limit`: g / max(1, norm / limit).

    Args:
        gradients: A tree whose leaves are [N, ...].
        limit: Positive.
    """
    factors = 1 / jnp.maximum(1, norms(gradients) / limit)
    return jax.tree.map(lambda leaf: leaf * factors.reshape(-1, *(1,) * (leaf.ndim - 1)), gradients)
