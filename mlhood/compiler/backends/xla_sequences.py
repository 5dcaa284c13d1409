"""Operators of sequences in JAX, as in `xla_operators`: attention and recurrent layers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any  # of JAX, or traced
_EXACT = lax.Precision.HIGHEST


def _attention(operator: Any, types: Any, q: Array, k: Array, v: Array, mask: Array = None) -> Array:
    scores = jnp.matmul(q * np.asarray(operator.scale, q.dtype), k.swapaxes(-1, -2), precision=_EXACT)
    if operator.causal:
        future = jnp.triu(jnp.full(scores.shape[-2:], -np.inf, q.dtype), 1)
        mask = future if mask is None else mask + future
    scores = scores if mask is None else scores + mask
    top = jnp.max(scores, -1, keepdims=True, initial=-np.inf)
    powers = jnp.exp(scores - jnp.where(jnp.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    weights = powers / jnp.where(total == 0, 1, total)
    if mask is not None:
        weights = jnp.where(jnp.isneginf(jnp.max(mask, -1, keepdims=True, initial=-np.inf)), 0, weights)
    return jnp.matmul(weights, v, precision=_EXACT)


def _recurrent(operator: Any, types: Any, *arrays: Array) -> tuple[Array, ...]:
    return operator.compute(jnp, lax.scan, *arrays)


RULES = {"Attention": _attention, **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent)}
