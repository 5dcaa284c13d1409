"""Forward mode: dual numbers, which carry a value and how fast it changes, through the function in its own order.

One run gives the derivative in one direction, J u, whatever the number of results; reverse mode gives v J, whatever the
number of inputs. For a network, with one loss and many weights, that is a run for each weight against a single one.

Source: A. Griewank, A. Walther, "Evaluating Derivatives", SIAM 2008, chapter 3.1.

>>> value, tangent = jvp(network, (params, x), (direction, np.zeros_like(x)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.errors import AutodiffError
from mlhood.jaxlab.autodiff.operators import NUMPY, Value, constant, plain
from mlhood.jaxlab.autodiff.rules import chosen
from mlhood.jaxlab.autodiff.trees import mapped
from mlhood.jaxlab.autodiff.windows import columns
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.geometry import Pair

Arrays = list[np.ndarray]


class Dual(Value):
    """A value and its tangent, of one shape."""

    def __init__(self, array: np.ndarray, tangent: np.ndarray) -> None:
        self._array = array
        self.tangent = tangent

    @property
    def array(self) -> np.ndarray:
        """The numbers."""
        return self._array

    def apply(self, op: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Dual:
        """Do an operation on values and tangents."""
        duals = [self._dual(one) for one in inputs]
        values = [one.array for one in duals]
        y = np.asarray(NUMPY[op](*values, **attributes))
        return Dual(y, np.asarray(JVPS[op](y, values, [one.tangent for one in duals], **attributes)))

    def _dual(self, one: Any) -> Dual:
        if isinstance(one, Dual):
            return one
        array = constant(one, self.dtype)
        return Dual(array, np.zeros_like(array))


def jvp(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return a function's value, and its derivative in a direction, as `jax.jvp`.

    Args:
        function: Computes with the operators of this package.
        primals: Its arguments: arrays, or nested dictionaries, lists and tuples of arrays.
        tangents: The direction, of the same shapes.

    Raises:
        AutodiffError: The tangents are not like the primals, or the result does not depend on them.
    """
    results = function(*mapped(_paired, tuple(primals), tuple(tangents)))
    return mapped(lambda _, one: _known(one).array, results), mapped(lambda _, one: one.tangent, results)


def _paired(name: str, primal: Any, tangent: Any) -> Dual:
    primal, tangent = np.asarray(plain(primal)), np.asarray(plain(tangent))
    if primal.shape != tangent.shape:
        raise AutodiffError("a tangent has its value's shape", where=name, expected=list(primal.shape),
                            got=list(tangent.shape))  # fmt: skip
    return Dual(primal, tangent)


def _known(one: Any) -> Dual:
    if isinstance(one, Dual):
        return one
    raise AutodiffError("the function's result does not depend on its arguments", got=type(one).__name__,
                        todo="compute with the functions of mlhood.jaxlab.autodiff")  # fmt: skip


# -- the rules: jvp(y, inputs, tangents, **attributes) -> the tangent of y


def _div(y: np.ndarray, inputs: Arrays, tangents: Arrays) -> np.ndarray:
    return (tangents[0] - y * tangents[1]) / inputs[1]


def _conv2d(y: np.ndarray, inputs: Arrays, tangents: Arrays, stride: Pair, padding: Pair) -> np.ndarray:
    (x, w), (dx, dw) = inputs[:2], tangents[:2]
    dbias = tangents[2] if len(tangents) == 3 else None
    return no_jax.conv2d(dx, w, None, stride, padding) + no_jax.conv2d(x, dw, dbias, stride, padding)


def _dense(y: np.ndarray, inputs: Arrays, tangents: Arrays) -> np.ndarray:
    (x, w, _), (dx, dw, dbias) = inputs, tangents
    return dx @ w.T + x @ dw.T + dbias


def _batch_norm(y: np.ndarray, inputs: Arrays, tangents: Arrays, eps: float) -> np.ndarray:
    x, mean, var, weight, _ = (one if i == 0 else one[:, None, None] for i, one in enumerate(inputs))
    dx, dmean, dvar, dweight, dbias = (one if i == 0 else one[:, None, None] for i, one in enumerate(tangents))
    wide = var + np.float32(eps)
    normal = (x - mean) / np.sqrt(wide)
    return (dx - dmean) * weight / np.sqrt(wide) - normal * weight * dvar / (2 * wide) + normal * dweight + dbias


def _max_pool(y: np.ndarray, inputs: Arrays, tangents: Arrays, kernel: int, stride: int, padding: int) -> np.ndarray:
    place = chosen(inputs[0], kernel, stride, padding)
    windows = columns(tangents[0], kernel, stride, padding)
    return np.take_along_axis(windows.reshape(*y.shape[:2], kernel**2, -1), place, 2).reshape(y.shape)


def _softmax(y: np.ndarray, inputs: Arrays, tangents: Arrays) -> np.ndarray:
    return y * (tangents[0] - (y * tangents[0]).sum(-1, keepdims=True))


def _cross_entropy(y: np.ndarray, inputs: Arrays, tangents: Arrays) -> np.ndarray:
    logits, labels = inputs
    expected = (no_jax.softmax(logits) * tangents[0]).sum(1)
    return (expected - np.take_along_axis(tangents[0], labels[:, None], 1)[:, 0]).mean()


JVPS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda y, inputs, tangents: tangents[0] + tangents[1],
    "sub": lambda y, inputs, tangents: tangents[0] - tangents[1],
    "mul": lambda y, inputs, tangents: tangents[0] * inputs[1] + inputs[0] * tangents[1],
    "div": _div,
    "neg": lambda y, inputs, tangents: -tangents[0],
    "exp": lambda y, inputs, tangents: y * tangents[0],
    "log": lambda y, inputs, tangents: tangents[0] / inputs[0],
    "tanh": lambda y, inputs, tangents: (1 - y * y) * tangents[0],
    "sigmoid": lambda y, inputs, tangents: y * (1 - y) * tangents[0],
    "relu": lambda y, inputs, tangents: tangents[0] * (inputs[0] > 0),
    "sum": lambda y, inputs, tangents, axis: tangents[0].sum(axis),
    "mean": lambda y, inputs, tangents, axis: tangents[0].mean(axis),
    "reshape": lambda y, inputs, tangents, shape: tangents[0].reshape(shape),
    "dense": _dense,
    "conv2d": _conv2d,
    "batch_norm": _batch_norm,
    "max_pool": _max_pool,
    "global_average_pool": lambda y, inputs, tangents: no_jax.global_average_pool(tangents[0]),
    "softmax": _softmax,
    "cross_entropy": _cross_entropy,
}
