"""References for P5's checks, in NumPy and float64, so that the grading process does not need JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.jaxlab.operators.cases import basic_block, resnet18

Tree = dict[str, Any]
State = dict[str, np.ndarray]
WIDTHS = (4, 6, 8, 10)
CLASSES = 5
DIGIT_SHAPES = {
    "conv1.weight": (16, 1, 3, 3),
    "conv1.bias": (16,),
    "conv2.weight": (32, 16, 3, 3),
    "conv2.bias": (32,),
    "conv3.weight": (32, 32, 3, 3),
    "conv3.bias": (32,),
    "fc.weight": (10, 512),
    "fc.bias": (10,),
}


# -- ResNet


def draw_state(rng: np.random.Generator) -> State:
    """Draw a ResNet-18 of few channels: float32 arrays and int64 batch counters by torch's names."""
    return _with_counters(rng, resnet18(int(rng.integers(2**31)), WIDTHS, CLASSES))


def draw_block(
    rng: np.random.Generator, channels: int, filters: int, prefix: str = "", *, projected: bool | None = None
) -> State:
    """Draw a basic block, as `cases.basic_block` does, with batch counters."""
    return _with_counters(rng, basic_block(rng, channels, filters, prefix, projected=projected))


def _with_counters(rng: np.random.Generator, state: State) -> State:
    norms = [name.removesuffix("running_var") for name in state if name.endswith("running_var")]
    return state | {f"{norm}num_batches_tracked": np.array(rng.integers(1, 1000)) for norm in norms}


def with_small_variances(state: State) -> State:
    """Return a state in which the epsilon of normalisations matters."""
    factors = {"running_var": np.float32(1e-4), "weight": np.float32(1e-2)}  # the weight makes up for the division
    norms = tuple(name.removesuffix("running_var") for name in state if name.endswith("running_var"))
    scaled = {norm + name: factor * state[norm + name] for norm in norms for name, factor in factors.items()}
    return state | scaled


# -- derivatives


def cross_entropy(logits: np.ndarray, labels: np.ndarray, smoothing: float = 0.0) -> float:
    """Return the mean of -log softmax at the labels [N] of logits [N, K].

    With label smoothing, a part of each label is spread evenly over all classes (C. Szegedy et al., "Rethinking the
    Inception architecture for computer vision", CVPR 2016).
    """
    targets = (1 - smoothing) * np.eye(logits.shape[1])[labels] + smoothing / logits.shape[1]
    logits = logits.astype(np.float64)
    return float((np.logaddexp.reduce(logits, axis=1) - (targets * logits).sum(axis=1)).mean())


def reordered(values: np.ndarray, axes: str, order: str) -> np.ndarray:
    """Return an array whose axes have these names, such as "NCHW", with its axes in another order."""
    return np.ascontiguousarray(values.transpose([axes.index(axis) for axis in order]))


def dense_layout(product: str, x: np.ndarray, w: np.ndarray, *results: np.ndarray) -> list[np.ndarray]:
    """Return x [N, in], w [out, in] and results [N, out] of a dense layer as a variant of the course stores them.

    Args:
        product: `x @ w.T`, which changes nothing, `x @ w`, `w @ x` or `w.T @ x`.
        x: Or its gradient.
        w: Or its gradient.
        results: Of the layer, or their gradients.
    """
    features_first, inputs_first = product.endswith("x"), product in ("x @ w", "w.T @ x")
    transposed = (features_first, inputs_first, *[features_first] * len(results))
    return [array.T.copy() if swap else array for array, swap in zip((x, w, *results), transposed, strict=True)]


def leaves(values: Any) -> list[np.ndarray]:
    """Return the arrays of a tree of dictionaries, lists and tuples, in the order of their names."""
    if isinstance(values, Mapping):
        return [leaf for name in sorted(values) for leaf in leaves(values[name])]
    if isinstance(values, list | tuple):
        return [leaf for value in values for leaf in leaves(value)]
    return [values]


def tree_map(function: Any, values: Any) -> Any:
    """Apply a function to each leaf of a tree of dictionaries."""
    if isinstance(values, Mapping):
        return {name: tree_map(function, value) for name, value in values.items()}
    return function(values)


def square_loss_gradient(params: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return the gradient of `probes.square_loss` by w and b: float64."""
    error = x.astype(np.float64) @ params["w"] + params["b"] - y
    return {"w": x.T @ error * 2 / error.size, "b": error.sum(axis=0) * 2 / error.size}
