"""Forward mode: dual numbers carry a value and its tangent through the function, in the order of execution.

One run computes the derivative in one direction, J u, for any number of outputs; reverse mode computes v J, for any
number of inputs. The gradient of a loss takes one run per weight in forward mode, a single one in reverse mode.

Source: A. Griewank, A. Walther, "Evaluating Derivatives", SIAM 2008, chapter 3.1.

>>> value, tangent = jvp(network, (params, x), (direction, np.zeros_like(x)))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.errors import AutodiffError
from mlhood.jaxlab.autodiff.operators import NUMPY, TracedValue, constant, reject_value
from mlhood.jaxlab.autodiff.rules import max_pool_argmax
from mlhood.jaxlab.autodiff.trees import map_with_path
from mlhood.jaxlab.autodiff.windows import columns
from mlhood.jaxlab.operators import no_jax
from mlhood.kernels.geometry import Pair

Arrays = list[np.ndarray]


class Dual(TracedValue):
    """A value and its tangent, of the same shape."""

    def __init__(self, array: np.ndarray, tangent: np.ndarray) -> None:
        self._array = array
        self.tangent = tangent

    @property
    def array(self) -> np.ndarray:
        """The data."""
        return self._array

    def apply(self, op: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Dual:
        """Execute an operation on values and tangents."""
        duals = [self._dual(operand) for operand in inputs]
        values = [dual.array for dual in duals]
        y = np.asarray(NUMPY[op](*values, **attributes))
        return Dual(y, np.asarray(JVPS[op](y, values, [dual.tangent for dual in duals], **attributes)))

    def _dual(self, operand: Any) -> Dual:
        if isinstance(operand, Dual):
            return operand
        array = constant(operand, self.dtype)
        return Dual(array, np.zeros_like(array))


def jvp(function: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return a function's value and its derivative in a direction, like `jax.jvp`.

    Args:
        function: Written with the operators of this package.
        primals: Its arguments: arrays, or nested dictionaries, lists and tuples of arrays.
        tangents: The direction, of the same shapes.

    Raises:
        AutodiffError: The tangents do not match the primals, or the result does not depend on them.
    """
    results = function(*map_with_path(_pair, tuple(primals), tuple(tangents)))
    values = map_with_path(lambda _, result: _require_dual(result).array, results)
    return values, map_with_path(lambda _, result: result.tangent, results)


def _pair(path: str, primal: Any, tangent: Any) -> Dual:
    primal, tangent = np.asarray(reject_value(primal)), np.asarray(reject_value(tangent))
    if primal.shape != tangent.shape:
        raise AutodiffError(
            "a tangent has the shape of its primal", where=path, expected=list(primal.shape), got=list(tangent.shape)
        )
    return Dual(primal, tangent)


def _require_dual(result: Any) -> Dual:
    if isinstance(result, Dual):
        return result
    what = "the function's result does not depend on its arguments"
    raise AutodiffError(what, got=type(result).__name__, todo="use the operators of mlhood.jaxlab.autodiff")


# -- the JVP rules: jvp(y, inputs, tangents, **attributes) -> the tangent of y


def _conv2d(y: np.ndarray, inputs: Arrays, tangents: Arrays, stride: Pair, padding: Pair) -> np.ndarray:
    (x, w), (dx, dw) = inputs[:2], tangents[:2]
    dbias = tangents[2] if len(tangents) == 3 else None
    return no_jax.conv2d(dx, w, None, stride, padding) + no_jax.conv2d(x, dw, dbias, stride, padding)


def _dense(y: np.ndarray, inputs: Arrays, tangents: Arrays) -> np.ndarray:
    (x, w, _), (dx, dw, dbias) = inputs, tangents
    return dx @ w.T + x @ dw.T + dbias


def _batch_norm(y: np.ndarray, inputs: Arrays, tangents: Arrays, eps: float) -> np.ndarray:
    x, (mean, var, weight, _) = inputs[0], (a[:, None, None] for a in inputs[1:])
    dx, (dmean, dvar, dweight, dbias) = tangents[0], (a[:, None, None] for a in tangents[1:])
    var = var + np.float32(eps)
    normal = (x - mean) / np.sqrt(var)
    return (dx - dmean) * weight / np.sqrt(var) - normal * weight * dvar / (2 * var) + normal * dweight + dbias


def _max_pool(y: np.ndarray, inputs: Arrays, tangents: Arrays, kernel: int, stride: int, padding: int) -> np.ndarray:
    argmax = max_pool_argmax(inputs[0], kernel, stride, padding)
    windows = columns(tangents[0], kernel, stride, padding)
    return np.take_along_axis(windows.reshape(*y.shape[:2], kernel**2, -1), argmax, 2).reshape(y.shape)


def _cross_entropy(y: np.ndarray, inputs: Arrays, tangents: Arrays) -> np.ndarray:
    logits, labels = inputs
    expected = (no_jax.softmax(logits) * tangents[0]).sum(1)
    return (expected - np.take_along_axis(tangents[0], labels[:, None], 1)[:, 0]).mean()


JVPS: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda y, inputs, tangents: tangents[0] + tangents[1],
    "sub": lambda y, inputs, tangents: tangents[0] - tangents[1],
    "mul": lambda y, inputs, tangents: tangents[0] * inputs[1] + inputs[0] * tangents[1],
    "div": lambda y, inputs, tangents: (tangents[0] - y * tangents[1]) / inputs[1],
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
    "softmax": lambda y, inputs, tangents: y * (tangents[0] - (y * tangents[0]).sum(-1, keepdims=True)),
    "cross_entropy": _cross_entropy,
}
