"""ResNet's operators in JAX, with the names and arguments of `no_jax`. Arrays are float32, images NCHW.

Called eagerly, each dispatches one or more XLA programs; under `jax.jit` they become parts of one program.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from mlhood.kernels.geometry import Pair, geometry


def conv2d(x: jax.Array, w: jax.Array, bias: jax.Array | None = None, stride: Pair = 1, padding: Pair = 0) -> jax.Array:
    """Convolve by XLA's convolution instruction; arguments, result and errors are those of `no_jax.conv2d`."""
    g = geometry(x.shape, w.shape, stride, padding)
    top, left, bottom, right = g.padding
    y = lax.conv_general_dilated(
        x, w, g.stride, ((top, bottom), (left, right)), dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y if bias is None else y + bias[:, None, None]


def batch_norm(
    x: jax.Array, mean: jax.Array, var: jax.Array, weight: jax.Array, bias: jax.Array, eps: float = 1e-5
) -> jax.Array:
    """Normalise each channel like `no_jax.batch_norm`, written like the formula: XLA fuses it into one pass."""
    scale = weight * lax.rsqrt(var + eps)
    return (x - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]


def relu(x: jax.Array) -> jax.Array:
    """Return max(x, 0) of each element, for an array of any shape; its derivative at 0 is 0."""
    return jax.nn.relu(x)


def max_pool(x: jax.Array, kernel: int = 3, stride: int = 2, padding: int = 1) -> jax.Array:
    """Return the maximum of each window; arguments, result and errors are those of `no_jax.max_pool`."""
    geometry(x.shape, (x.shape[1], x.shape[1], kernel, kernel), stride, padding)
    window, strides = (1, 1, kernel, kernel), (1, 1, stride, stride)
    sides = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, sides)


def add(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return x + y, for two arrays of the same shape."""
    return x + y


def global_average_pool(x: jax.Array) -> jax.Array:
    """Return the mean of each channel: float32 [N, C, H, W] -> [N, C]."""
    return jnp.mean(x, (2, 3))


def dense(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x @ w.T + bias, float32 [N, outputs]: x [N, inputs], w [outputs, inputs] as in torch, bias [outputs]."""
    return x @ w.T + bias


def softmax(x: jax.Array) -> jax.Array:
    """Return exp(x) / sum(exp(x)) along the last axis, for any number of axes; the maximum is subtracted first."""
    powers = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return powers / jnp.sum(powers, -1, keepdims=True)
