"""Operators that accept arrays and values on a tape.

A network is written once, with these operators; the types of its arguments decide how it is run. The package can be the
`ops` of `mlhood.jaxlab.operators.network`, like `no_jax` and `with_jax`; on arrays it behaves like `no_jax`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.errors import AutodiffError
from mlhood.jaxlab.operators import no_jax

Axes = int | tuple[int, ...] | None


def _binary(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the methods for `self op other` and for `other op self`."""
    return lambda self, other: apply(op, self, other), lambda self, other: apply(op, other, self)


class TapeValue:
    """A value on a tape. Operations on it are executed immediately and recorded.

    Args:
        tape: A `Tape`.
        number: Of the value on it.
    """

    __array_ufunc__ = None  # makes NumPy defer `array + value` to us

    def __init__(self, tape: Any, number: int) -> None:
        self.tape = tape
        self.number = number

    @property
    def array(self) -> np.ndarray:
        """The data."""
        return self.tape.values[self.number]

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """The array's dtype."""
        return self.array.dtype

    def __repr__(self) -> str:
        return f"TapeValue({self.dtype}{list(self.shape)})"

    def __len__(self) -> int:
        return len(self.array)

    __add__, __radd__ = _binary("add")
    __sub__, __rsub__ = _binary("sub")
    __mul__, __rmul__ = _binary("mul")
    __truediv__, __rtruediv__ = _binary("div")

    def __neg__(self) -> Any:
        return apply("neg", self)

    def reshape(self, *shape: Any) -> Any:
        """Like NumPy's: reshape(2, 3) or reshape((2, 3)), -1 for the remaining size."""
        return reshape(self, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape)

    def sum(self, axis: Axes = None) -> Any:
        """Return the sum over some axes, or over all."""
        return sum(self, axis)


def _cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or labels.dtype.kind not in "iu":
        raise AutodiffError(
            "invalid logits or labels",
            where="cross_entropy",
            expected="[N, classes], and N integers",
            got=f"{list(logits.shape)}, and {labels.dtype}{list(labels.shape)}",
        )
    shifted = logits - logits.max(1, keepdims=True)  # so that exp does not overflow
    label_logits = np.take_along_axis(shifted, labels[:, None], 1)[:, 0]
    return (np.log(np.exp(shifted).sum(1)) - label_logits).mean()


NUMPY: dict[str, Callable[..., Any]] = {
    "conv2d": no_jax.conv2d,
    "batch_norm": no_jax.batch_norm,
    "relu": no_jax.relu,
    "max_pool": no_jax.max_pool,
    "add": no_jax.add,
    "global_average_pool": no_jax.global_average_pool,
    "dense": no_jax.dense,
    "softmax": no_jax.softmax,
    "cross_entropy": _cross_entropy,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 0.5 * np.tanh(0.5 * x) + 0.5,  # 1 / (1 + exp(-x)), which would overflow
    "sum": lambda x, axis: x.sum(axis),
    "mean": lambda x, axis: x.mean(axis),
    "reshape": lambda x, shape: x.reshape(shape),
}


def apply(op: str, *inputs: Any, **attributes: Any) -> Any:
    """Execute an operation with NumPy, and record it on the tape of its inputs, if any is on one.

    Args:
        op: A key of `NUMPY`.
        inputs: Arrays and tape values; arrays beside values are constants.
        attributes: Static arguments: strides, shapes.

    Raises:
        KernelError: The shapes of a convolution or a pooling do not match.
        AutodiffError: The inputs are on different tapes.
    """
    value = next((operand for operand in inputs if isinstance(operand, TapeValue)), None)
    return NUMPY[op](*inputs, **attributes) if value is None else value.tape.record(op, inputs, attributes)


def conv2d(x: Any, w: Any, bias: Any = None, stride: int = 1, padding: int = 0) -> Any:
    """Convolve, as `no_jax.conv2d`: x [N, C, H, W], w [F, C, KH, KW], bias [F] or None -> [N, F, OH, OW]."""
    inputs = (x, w) if bias is None else (x, w, bias)
    return apply("conv2d", *inputs, stride=stride, padding=padding)


def batch_norm(x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    """Normalise by running statistics, as `no_jax.batch_norm`: x [N, C, H, W], the others [C] -> [N, C, H, W]."""
    return apply("batch_norm", x, mean, var, weight, bias, eps=eps)


def relu(x: Any) -> Any:
    """Return max(x, 0)."""
    return apply("relu", x)


def max_pool(x: Any, kernel: int = 3, stride: int = 2, padding: int = 1) -> Any:
    """Return the maximum of each window, as `no_jax.max_pool`: [N, C, H, W] -> [N, C, OH, OW]."""
    return apply("max_pool", x, kernel=kernel, stride=stride, padding=padding)


def add(x: Any, y: Any) -> Any:
    """Return x + y, broadcast like NumPy's."""
    return apply("add", x, y)


def global_average_pool(x: Any) -> Any:
    """Return each channel's mean: [N, C, H, W] -> [N, C]."""
    return apply("global_average_pool", x)


def dense(x: Any, w: Any, bias: Any) -> Any:
    """Return x @ w.T + bias: x [N, in], w [out, in], bias [out] -> [N, out]."""
    return apply("dense", x, w, bias)


def softmax(x: Any) -> Any:
    """Return exp(x) / sum(exp(x)) along the last axis."""
    return apply("softmax", x)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Return the mean over the batch of -log softmax(logits)[label]: [N, classes], integers [N] -> [].

    Raises:
        AutodiffError: The shapes do not match, or the labels are not integers.
    """
    return apply("cross_entropy", logits, labels)


def exp(x: Any) -> Any:
    """Return e to the power of x."""
    return apply("exp", x)


def log(x: Any) -> Any:
    """Return the natural logarithm."""
    return apply("log", x)


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""
    return apply("tanh", x)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return apply("sigmoid", x)


def sum(x: Any, axis: Axes = None) -> Any:
    """Return the sum over some axes, or over all."""
    return apply("sum", x, axis=axis)


def mean(x: Any, axis: Axes = None) -> Any:
    """Return the mean over some axes, or over all."""
    return apply("mean", x, axis=axis)


def reshape(x: Any, shape: tuple[int, ...]) -> Any:
    """Return the same data in another shape, -1 for the remaining size."""
    return apply("reshape", x, shape=tuple(shape))
