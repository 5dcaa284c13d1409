"""VJP rules: each maps the gradient with respect to an operation's output to gradients with respect to its inputs.

A rule takes g, the gradient with respect to the output y, then y, the inputs and the attributes, arrays being NumPy's,
and returns a gradient for each input, or None where there is none. It computes the product of g and the operation's
Jacobian, which is never materialised. Rules may reuse y: what exp or a pooling has computed is not computed again.
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
_PIXELS = (0, 2, 3)  # the axes of [N, C, H, W] over which a per-channel parameter is broadcast


def unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """Reduce a gradient to the shape that a value had before it was broadcast: the transpose of copying is a sum."""
    g = g.sum(tuple(range(g.ndim - len(shape))))
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and g.shape[i] != 1)
    return g.sum(axes, keepdims=True)


def vjp_add(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a + b, broadcast."""
    return unbroadcast(g, a.shape), unbroadcast(g, b.shape)


def vjp_sub(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a - b, broadcast."""
    return unbroadcast(g, a.shape), unbroadcast(-g, b.shape)


def vjp_mul(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a * b, broadcast."""
    return unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)


def vjp_div(g: Array, y: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """y = a / b, broadcast."""
    return unbroadcast(g / b, a.shape), unbroadcast(-g * y / b, b.shape)


def vjp_relu(g: Array, y: Array, x: Array) -> tuple[Array]:
    """y = max(x, 0); the derivative at 0, where it is undefined, is 0, as in torch and JAX."""
    return (g * (x > 0),)


def vjp_sum(g: Array, y: Array, x: Array, axis: Any) -> tuple[Array]:
    """y = x.sum(axis): the gradient is broadcast to all summands."""
    return (_broadcast_like(g, x, axis),)


def vjp_mean(g: Array, y: Array, x: Array, axis: Any) -> tuple[Array]:
    """y = x.mean(axis): the gradient is divided among the summands."""
    return (_broadcast_like(g, x, axis) * (y.size / np.asarray(x.size, x.dtype)),)


def _broadcast_like(g: Array, x: Array, axis: Any) -> Array:
    expanded = np.expand_dims(g, tuple(range(x.ndim)) if axis is None else axis)
    return np.broadcast_to(expanded, x.shape)


def vjp_dense(g: Array, y: Array, x: Array, w: Array, bias: Array) -> tuple[Array, Array, Array]:
    """y = x @ w.T + bias."""
    return g @ w, g.T @ x, g.sum(0)


def vjp_conv2d(
    g: Array, y: Array, x: Array, w: Array, bias: Array | None = None, stride: Pair = 1, padding: Pair = 0
) -> tuple[Array, ...]:
    """y = conv2d(x, w, bias): per image a matrix product, y = w @ columns(x), differentiated in both factors."""
    kernel = w.shape[2:]
    flat, rows = g.reshape(*g.shape[:2], -1), w.reshape(len(w), -1)
    dw = (flat @ columns(x, kernel, stride, padding).swapaxes(1, 2)).sum(0).reshape(w.shape)
    dx = scatter(rows.T @ flat, x.shape, kernel, stride, padding)
    return (dx, dw) if bias is None else (dx, dw, g.sum(_PIXELS))


def vjp_batch_norm(
    g: Array, y: Array, x: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float
) -> tuple[Array, ...]:
    """y = (x - mean) / sqrt(var + eps) * weight + bias, where mean and var are inputs: running statistics."""
    var = np.asarray(var + np.float32(eps))
    scale = weight / np.sqrt(var)
    dbias = g.sum(_PIXELS)
    dweight = (g * (x - mean[:, None, None])).sum(_PIXELS) / np.sqrt(var)
    return g * scale[:, None, None], -scale * dbias, -weight * dweight / (2 * var), dweight, dbias


def max_pool_argmax(x: Array, kernel: int, stride: int, padding: int) -> Array:
    """Return the position of each window's maximum, of several equal ones the first in row-major order.

    Returns:
        Integers [N, C, 1, OH * OW], from 0 to kernel ** 2 - 1.
    """
    windows = columns(x, kernel, stride, padding, fill=-np.inf)
    return windows.reshape(*x.shape[:2], kernel**2, -1).argmax(2, keepdims=True)


def vjp_max_pool(g: Array, y: Array, x: Array, kernel: int, stride: int, padding: int) -> tuple[Array]:
    """y = max_pool(x): the gradient goes to the maximum, of equal pixels to the first, as in torch and JAX."""
    flat = g.reshape(*g.shape[:2], 1, -1)
    parts = np.zeros((*g.shape[:2], kernel**2, flat.shape[-1]), g.dtype)
    np.put_along_axis(parts, max_pool_argmax(x, kernel, stride, padding), flat, 2)
    return (scatter(parts.reshape(len(g), -1, flat.shape[-1]), x.shape, kernel, stride, padding),)


def vjp_softmax(g: Array, y: Array, x: Array) -> tuple[Array]:
    """y = softmax(x), whose Jacobian is diag(y) - y y^T."""
    return (y * (g - (g * y).sum(-1, keepdims=True)),)


def vjp_cross_entropy(g: Array, y: Array, logits: Array, labels: Array) -> tuple[Array, None]:
    """y = mean of -log softmax(logits)[label]: (softmax - one-hot label) / N; integer labels have no gradient."""
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
    "global_average_pool": lambda g, y, x: vjp_mean(g, y, x, (2, 3)),
    "softmax": vjp_softmax,
    "cross_entropy": vjp_cross_entropy,
}
"""The rule of each operator: `rule(g, y, *inputs, **attributes)` returns a gradient for each input, or None."""
