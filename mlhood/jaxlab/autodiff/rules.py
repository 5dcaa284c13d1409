"""Reverse rules: what an operation makes of the gradient by its result.

Each rule takes g, the gradient by the result y, then y, the inputs and the attributes, all arrays of NumPy, and returns
a gradient for each input, or None where there is none. It is the product of g and the operation's Jacobian, which is
never written out. Rules may use y: what exp or a pooling has found need not be worked out again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.jaxlab.autodiff.windows import columns, scatter
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.geometry import Pair

Rule = Callable[..., Any]
Array = np.ndarray
_PIXELS = (0, 2, 3)  # the axes of [N, C, H, W] that share a channel's number


def unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """Return a gradient in the shape that a value had before it was stretched: copies add up."""
    g = g.sum(tuple(range(g.ndim - len(shape))))
    stretched = tuple(i for i, size in enumerate(shape) if size == 1 and g.shape[i] != 1)
    return g.sum(stretched, keepdims=True)


def vjp_add(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a + b, stretched."""
    return unbroadcast(g, a.shape), unbroadcast(g, b.shape)


def vjp_sub(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a - b, stretched."""
    return unbroadcast(g, a.shape), unbroadcast(-g, b.shape)


def vjp_mul(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a * b, stretched."""
    return unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)


def vjp_div(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a / b, stretched."""
    return unbroadcast(g / b, a.shape), unbroadcast(-g * y / b, b.shape)


def vjp_relu(g: Array, y: Array, x: Array) -> tuple[Array]:
    """y = max(x, 0); at 0, where there is no derivative, 0, as in torch and JAX."""
    return (g * (x > 0),)


def vjp_sum(g: Array, y: Array, x: Array, axis: Any) -> tuple[Array]:
    """y = x.sum(axis): each number gets the whole gradient."""
    return (_stretched(g, x, axis),)


def vjp_mean(g: Array, y: Array, x: Array, axis: Any) -> tuple[Array]:
    """y = x.mean(axis): each number gets its share."""
    return (_stretched(g, x, axis) * (y.size / np.asarray(x.size, x.dtype)),)


def _stretched(g: Array, x: Array, axis: Any) -> Array:
    kept = np.expand_dims(g, tuple(range(x.ndim)) if axis is None else axis)
    return np.broadcast_to(kept, x.shape)


def vjp_dense(g: Array, y: Array, x: Array, w: Array, bias: Array) -> tuple[Array, Array, Array]:
    """y = x @ w.T + bias."""
    return g @ w, g.T @ x, g.sum(0)


def vjp_conv2d(
    g: Array, y: Array, x: Array, w: Array, bias: Array | None = None, stride: Pair = 1, padding: Pair = 0
) -> tuple[Array, ...]:
    """y = conv2d(x, w, bias): for each image a product of matrices, y = w @ columns(x), transposed twice."""
    kernel = w.shape[2:]
    flat, rows = g.reshape(*g.shape[:2], -1), w.reshape(len(w), -1)
    dw = (flat @ columns(x, kernel, stride, padding).swapaxes(1, 2)).sum(0).reshape(w.shape)
    dx = scatter(rows.T @ flat, x.shape, kernel, stride, padding)
    return (dx, dw) if bias is None else (dx, dw, g.sum(_PIXELS))


def vjp_batch_norm(
    g: Array, y: Array, x: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float
) -> tuple[Array, ...]:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, where mean and var are inputs: running statistics."""
    wide = np.asarray(var + np.float32(eps))
    scale = weight / np.sqrt(wide)
    total = g.sum(_PIXELS)
    moment = (g * (x - mean[:, None, None])).sum(_PIXELS) / np.sqrt(wide)
    return g * scale[:, None, None], -scale * total, -weight * moment / (2 * wide), moment, total


def chosen(x: Array, kernel: int, stride: int, padding: int) -> Array:
    """Return which place of each window a pooling takes: the first of several that are equal, by row and column.

    Returns:
        Integers [N, C, 1, OH * OW], from 0 to kernel ** 2 - 1.
    """
    windows = columns(x, kernel, stride, padding, fill=-np.inf)
    return windows.reshape(*x.shape[:2], kernel**2, -1).argmax(2, keepdims=True)


def vjp_max_pool(g: Array, y: Array, x: Array, kernel: int, stride: int, padding: int) -> tuple[Array]:
    """y = max_pool(x): the pixel that was taken gets all; of equal ones the first, as in torch and JAX."""
    flat = g.reshape(*g.shape[:2], 1, -1)
    parts = np.zeros((*g.shape[:2], kernel**2, flat.shape[-1]), g.dtype)
    np.put_along_axis(parts, chosen(x, kernel, stride, padding), flat, 2)
    return (scatter(parts.reshape(len(g), -1, flat.shape[-1]), x.shape, kernel, stride, padding),)


def vjp_global_average_pool(g: Array, y: Array, x: Array) -> tuple[Array]:
    """y = x.mean((2, 3))."""
    return vjp_mean(g, y, x, (2, 3))


def vjp_softmax(g: Array, y: Array, x: Array) -> tuple[Array]:
    """y = softmax(x), of which the Jacobian is diag(y) - y y^T."""
    return (y * (g - (g * y).sum(-1, keepdims=True)),)


def vjp_cross_entropy(g: Array, y: Array, logits: Array, labels: Array) -> tuple[Array, None]:
    """y = mean of -log softmax(logits)[label]: probabilities, less 1 at the label, over N; labels are no reals."""
    gradient = no_jax.softmax(logits)
    gradient[np.arange(len(labels)), labels] -= 1
    return g * gradient / np.asarray(len(labels), logits.dtype), None


RULES: dict[str, Rule] = {
    "add": vjp_add,
    "sub": vjp_sub,
    "mul": vjp_mul,
    "div": vjp_div,
    "neg": lambda g, y, x: (-g,),
    "exp": lambda g, y, x: (g * y,),
    "log": lambda g, y, x: (g / x,),
    "tanh": lambda g, y, x: (g * (1 - y * y),),
    "sigmoid": lambda g, y, x: (g * y * (1 - y),),
    "relu": vjp_relu,
    "sum": vjp_sum,
    "mean": vjp_mean,
    "reshape": lambda g, y, x, shape: (g.reshape(x.shape),),
    "dense": vjp_dense,
    "conv2d": vjp_conv2d,
    "batch_norm": vjp_batch_norm,
    "max_pool": vjp_max_pool,
    "global_average_pool": vjp_global_average_pool,
    "softmax": vjp_softmax,
    "cross_entropy": vjp_cross_entropy,
}
