"""ResNet's operators in JAX, with the names and arguments of `no_jax`. Arrays are float32, images NCHW.

Called as they are, each is an XLA program of its own or several; within `jax.jit` they become parts of one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from mlhood.kernels.geometry import Pair, geometry


def conv2d(x: jax.Array, w: jax.Array, bias: jax.Array | None = None, stride: Pair = 1, padding: Pair = 0) -> jax.Array:
    """Convolve, as one operation of XLA.

    Args:
        x: float32 [N, C, H, W].
        w: float32 [F, C, KH, KW].
        bias: float32 [F], or None.
        stride: One number, or down and right.
        padding: Zeros on each side: one number, (down, right), or (top, left, bottom, right).

    Returns:
        float32 [N, F, OH, OW].

    Raises:
        KernelError: The arguments do not fit together.
    """
    g = geometry(x.shape, w.shape, stride, padding)
    top, left, bottom, right = g.padding
    y = lax.conv_general_dilated(
        x, w, g.stride, ((top, bottom), (left, right)), dimension_numbers=("NCHW", "OIHW", "NCHW")
    )
    return y if bias is None else y + bias[:, None, None]


def batch_norm(
    x: jax.Array, mean: jax.Array, var: jax.Array, weight: jax.Array, bias: jax.Array, eps: float = 1e-5
) -> jax.Array:
    """Normalise each channel by running statistics: (x - mean) / sqrt(var + eps) * weight + bias.

    (Ioffe and Szegedy, Batch Normalization, 2015, algorithm 2.) Written as it reads: XLA makes one pass of it.

    Args:
        x: float32 [N, C, H, W].
        mean: float32 [C], as are var, weight and bias.
        var: Variance.
        weight: Factor after the normalisation.
        bias: Summand after it.
        eps: Keeps the root from zero.

    Returns:
        float32 [N, C, H, W].
    """
    scale = weight * lax.rsqrt(var + eps)
    return (x - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]


def relu(x: jax.Array) -> jax.Array:
    """Return max(x, 0) of each element, for an array of any shape; its derivative at 0 is 0."""
    return jax.nn.relu(x)


def max_pool(x: jax.Array, kernel: int = 3, stride: int = 2, padding: int = 1) -> jax.Array:
    """Take the largest number of each window; what is padded is minus infinity, so it is never taken.

    Args:
        x: float32 [N, C, H, W].
        kernel: Height and width of a window.
        stride: From one window to the next.
        padding: On each side.

    Returns:
        float32 [N, C, OH, OW].

    Raises:
        KernelError: The window does not fit into the image.
    """
    geometry(x.shape, (x.shape[1], x.shape[1], kernel, kernel), stride, padding)
    around = (padding, padding)
    windows, strides = (1, 1, kernel, kernel), (1, 1, stride, stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, windows, strides, ((0, 0), (0, 0), around, around))


def add(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return x + y, for arrays of any one shape."""
    return x + y


def global_average_pool(x: jax.Array) -> jax.Array:
    """Return the mean of each channel: float32 [N, C, H, W] -> [N, C]."""
    return jnp.mean(x, (2, 3))


def dense(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x times the transpose of w, plus bias.

    Args:
        x: float32 [N, inputs].
        w: float32 [outputs, inputs], as torch stores it.
        bias: float32 [outputs].

    Returns:
        float32 [N, outputs].
    """
    return x @ w.T + bias


def softmax(x: jax.Array) -> jax.Array:
    """Return exp(x) / sum(exp(x)) along the last axis, for any number of axes; the largest is taken off first."""
    powers = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return powers / jnp.sum(powers, -1, keepdims=True)
