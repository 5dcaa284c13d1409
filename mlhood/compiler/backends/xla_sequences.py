"""Operators of sequences in JAX, as in `xla_operators`: attention, recurrent layers, ranges, selection, triangles."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from mlhood.errors import CompilerError

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


def _range(operator: Any, types: Any, start: Array, limit: Array, delta: Array, x: Array = None) -> Array:
    """Count by the axis of x; shapes must be known when a function is traced."""
    known = operator.length if x is None else x.shape[operator.axis] + operator.offset
    if isinstance(known, str):
        what = "the length of a range must be known before the run"
        raise CompilerError(what, got=known, todo="run the model on the target interpreter")
    return start.reshape(()) + jnp.arange(known).astype(start.dtype) * delta.reshape(())


def _trilu(operator: Any, types: Any, x: Array, diagonal: Array = None) -> Array:
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    k = operator.diagonal if diagonal is None else diagonal.reshape(())
    kept = columns - rows >= k if operator.upper else columns - rows <= k
    return jnp.where(kept, x, jnp.zeros_like(x))


def _mod(operator: Any, types: Any, a: Array, b: Array) -> Array:
    return jnp.fmod(a, b) if operator.truncated else jnp.mod(a, b)


def _top_k(operator: Any, types: Any, x: Array, k: Array = None) -> tuple[Array, Array]:
    if k is not None:
        what = "the number of elements must be known before the run"
        raise CompilerError(what, got="k is computed", todo="run the model on the target interpreter")
    order = jnp.argsort(x, axis=operator.axis, stable=True, descending=operator.largest)
    indices = lax.slice_in_dim(order, 0, operator.k, axis=operator.axis % x.ndim)
    return jnp.take_along_axis(x, indices, operator.axis), indices


def _hardmax(operator: Any, types: Any, x: Array) -> Array:
    axes = tuple(axis % x.ndim for axis in operator.axes)
    order = (*(i for i in range(x.ndim) if i not in axes), *axes)
    moved = x.transpose(order)
    rows = moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)
    ones = jnp.arange(rows.shape[-1]) == rows.argmax(-1)[..., None]
    return ones.astype(x.dtype).reshape(moved.shape).transpose(np.argsort(order))


def _group_normalization(operator: Any, types: Any, x: Array, scale: Array, bias: Array) -> Array:
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    rows = wide.reshape(x.shape[0], operator.groups, -1)
    normal = (rows - rows.mean(2, keepdims=True)) / jnp.sqrt(rows.var(2, keepdims=True) + operator.epsilon)
    vector = (-1, *(1,) * (x.ndim - 2))
    return normal.reshape(x.shape) * scale.reshape(vector) + bias.reshape(vector)


def _einsum(operator: Any, types: Any, *arrays: Array) -> Array:
    return jnp.einsum(operator.equation, *arrays, precision=_EXACT)


RULES = {
    "Attention": _attention,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    "Range": _range,
    "Trilu": _trilu,
    "Mod": _mod,
    "TopK": _top_k,
    "Hardmax": _hardmax,
    "GroupNormalization": _group_normalization,
    "Einsum": _einsum,
}
