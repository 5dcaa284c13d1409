"""Operators whose arrays have their axes in another order, called as if they had the order of `no_jax`, or the reverse.

The networks and the table of P5 call operators on images [N, C, H, W]. Others store them as [N, H, W, C] (TensorFlow),
or with the batch last (cuda-convnet). Nothing is copied: the operators get transposed views.

>>> mine = adapted(operators, own=Layout("NHWC", "HWCF", "x @ w"))
>>> mine.conv2d(x, w)  # x: [N, C, H, W], w: [F, C, KH, KW]; operators.conv2d gets [N, H, W, C] and [KH, KW, C, F]
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple


class Layout(NamedTuple):
    """The order of axes.

    Args:
        images: Of images and of what is computed of them: a permutation of "NCHW".
        filters: Of a convolution's weights: a permutation of "FCHW".
        dense: The product of a dense layer, which says how x, w and the result are stored: `x @ w.T` for [N, in],
            [out, in] and [N, out], `x @ w`, or, with the batch last, `w @ x` or `w.T @ x`.
    """

    images: str = "NCHW"
    filters: str = "FCHW"
    dense: str = "x @ w.T"


STANDARD = Layout()
"""That of `no_jax`, `with_jax` and torch."""


def adapted(operators: Any, own: Layout, called: Layout = STANDARD) -> Any:
    """Return operators as they are called with the arrays of another layout.

    Args:
        operators: A namespace with the functions of `no_jax`, or those of them that are called.
        own: The layout that they compute in.
        called: The layout of what they are called with, and of what they return.
    """
    if own == called:
        return operators
    there, back = _order(called.images, own.images), _order(own.images, called.images)
    filters = _order(called.filters, own.filters)
    swap_batch = called.dense.endswith("x") != own.dense.endswith("x")
    swap_weights = _inputs_first(called.dense) != _inputs_first(own.dense)

    def conv2d(x: Any, w: Any, bias: Any = None, stride: int = 1, padding: int = 0) -> Any:
        y = operators.conv2d(x.transpose(there), w.transpose(filters), bias, stride=stride, padding=padding)
        return y.transpose(back)

    def max_pool(x: Any, kernel: int = 3, stride: int = 2, padding: int = 1) -> Any:
        y = operators.max_pool(x.transpose(there), kernel=kernel, stride=stride, padding=padding)
        return y.transpose(back)

    def batch_norm(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
        return operators.batch_norm(x.transpose(there), mean, var, weight, bias, eps=eps).transpose(back)

    def global_average_pool(x: Any) -> Any:
        y = operators.global_average_pool(x.transpose(there))
        return y.T if _channels_first(called.images) != _channels_first(own.images) else y

    def dense(x: Any, w: Any, bias: Any) -> Any:
        y = operators.dense(x.T if swap_batch else x, w.T if swap_weights else w, bias)
        return y.T if swap_batch else y

    return SimpleNamespace(
        conv2d=conv2d,
        max_pool=max_pool,
        batch_norm=batch_norm,
        relu=lambda x: operators.relu(x),
        add=lambda x, y: operators.add(x, y),
        global_average_pool=global_average_pool,
        dense=dense,
        softmax=lambda x: operators.softmax(x),
    )


def _order(axes: str, order: str) -> list[int]:
    return [axes.index(axis) for axis in order]


def _channels_first(images: str) -> bool:
    return images.index("C") < images.index("N")


def _inputs_first(product: str) -> bool:
    return product in ("x @ w", "w.T @ x")
