"""Per-example gradients by `vmap` of `grad`, and their use: clipping each one before the mean.

The gradient of a mean loss mixes all examples. To bound the influence of a single one, each example's gradient is
needed: M. Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1 (here without its noise).

>>> gradients = per_example(loss, params, x, y)  # a tree like params, each leaf [N, ...]
>>> norms(gradients)  # float32 [N]
>>> clipped_mean(gradients, limit=1.0)  # a tree like params
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mlhood.errors import XlaError

Tree = Any
Loss = Callable[[Tree, jax.Array, jax.Array], jax.Array]


def per_example(loss: Loss, params: Tree, x: jax.Array, y: jax.Array) -> Tree:
    """Return the gradient of each example's loss.

    Args:
        loss: (params, x [N, ...], y [N, ...]) -> a scalar, for batches of any N: each example is a batch of one.
        params: A tree of arrays.
        x: [N, ...].
        y: [N, ...].

    Returns:
        A tree like params; each leaf has a leading axis of length N.

    Raises:
        XlaError: x and y have different lengths, or are empty.
    """
    _check_examples(x, y)

    def example_loss(params: Tree, image: jax.Array, label: jax.Array) -> jax.Array:
        return loss(params, image[None], label[None])

    return jax.vmap(jax.grad(example_loss), (None, 0, 0))(params, jnp.asarray(x), jnp.asarray(y))


def norms(gradients: Tree) -> jax.Array:
    """Return each example's Euclidean norm over all leaves: [N, ...] -> [N]."""
    squares = [jnp.sum(jnp.square(leaf), tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(gradients)]
    return jnp.sqrt(sum(squares[1:], squares[0]))


def clipped(gradients: Tree, limit: float) -> Tree:
    """Scale each example's gradient down to a norm of at most `limit`: g / max(1, norm / limit).

    Args:
        gradients: A tree whose leaves are [N, ...].
        limit: Positive.

    Raises:
        XlaError: The limit is not positive.
    """
    if not limit > 0:
        raise XlaError("invalid clipping limit", where="limit", expected="a positive number", got=limit)
    factors = 1 / jnp.maximum(1, norms(gradients) / limit)
    return jax.tree.map(lambda leaf: leaf * factors.reshape(-1, *(1,) * (leaf.ndim - 1)), gradients)


def clipped_mean(gradients: Tree, limit: float) -> Tree:
    """Return the mean of the clipped gradients over the examples: leaves [N, ...] -> [...].

    Raises:
        XlaError: The limit is not positive.
    """
    return jax.tree.map(lambda leaf: jnp.mean(leaf, 0), clipped(gradients, limit))


def _check_examples(x: Any, y: Any) -> None:
    if len(x) != len(y) or not len(x):
        what = "different numbers of examples and labels"
        raise XlaError(what, expected="the same number of both, at least one", got=f"{len(x)} and {len(y)}")
