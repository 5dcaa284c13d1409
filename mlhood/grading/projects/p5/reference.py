"""References for P5's checks, in NumPy and float64, so that the grading process does not need JAX."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlhood.jaxlab.operators.cases import basic_block, resnet18
from mlhood.jaxlab.operators.no_jax import softmax

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


def example_gradients(params: Tree, x: np.ndarray, y: np.ndarray) -> Tree:
    """Return each example's own gradient of the loss of `probes.small_loss`, with a leading axis N.

    Args:
        params: "hidden" and "out", each "w" and "b".
        x: [N, D].
        y: Labels [N].
    """
    hidden = np.tanh(x.astype(np.float64) @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["out"]["w"] + params["out"]["b"]
    up = softmax(logits) - np.eye(logits.shape[1])[y]
    down = up @ params["out"]["w"].T * (1 - hidden**2)
    return {
        "hidden": {"w": x[:, :, None] * down[:, None, :], "b": down},
        "out": {"w": hidden[:, :, None] * up[:, None, :], "b": up},
    }


def norms(gradients: Tree, kind: str = "euclidean") -> np.ndarray:
    """Return the norm of each example's gradient over the whole tree: [N].

    Args:
        gradients: A tree whose leaves are [N, ...].
        kind: `euclidean`, or the `sum` of all absolute values.
    """
    flat = np.hstack([leaf.reshape(len(leaf), -1).astype(np.float64) for leaf in leaves(gradients)])
    return np.linalg.norm(flat, 2 if kind == "euclidean" else 1, axis=1)


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


# -- steps of training


def momentum_steps(
    params: Mapping[str, np.ndarray], batches: list[tuple[np.ndarray, np.ndarray]], rate: float, momentum: float
) -> tuple[list[dict[str, np.ndarray]], list[float]]:
    """Return the parameters after and the losses before each step of SGD with momentum on `probes.square_loss`.

    As in optax: velocity = gradient + momentum * velocity, and parameters -= rate * velocity
    (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013).

    Args:
        params: "w" [D, K] and "b" [K].
        batches: x [N, D] and y [N, K] of each step.
        rate: Learning rate.
        momentum: Decay of the velocity.
    """
    now = {name: value.astype(np.float64) for name, value in params.items()}
    velocity = {name: np.zeros_like(value) for name, value in now.items()}
    after, losses = [], []
    for x, y in batches:
        losses.append(float(((x @ now["w"] + now["b"] - y) ** 2).mean()))
        gradient = square_loss_gradient(now, x, y)
        velocity = {name: gradient[name] + momentum * velocity[name] for name in now}
        now = {name: now[name] - rate * velocity[name] for name in now}
        after.append(now)
    return after, losses


def square_loss_gradient(params: Mapping[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return the gradient of `probes.square_loss` by w and b: float64."""
    error = x.astype(np.float64) @ params["w"] + params["b"] - y
    return {"w": x.T @ error * 2 / error.size, "b": error.sum(axis=0) * 2 / error.size}


# -- a plan for the step of `mlhood.jaxlab.cluster.plans`

Spec = tuple[str | None, ...]
Kind = tuple[Spec, Spec, Spec]  # how a layer's inputs, its weights and its results are divided
WHOLE, ROWS, COLUMNS = (), ("devices",), (None, "devices")
PRICES: dict[Kind, tuple[float, float, float]] = {
    (ROWS, WHOLE, ROWS): (0, 2, 0),
    (ROWS, WHOLE, COLUMNS): (1, 1, 1 / 8),
    (ROWS, COLUMNS, COLUMNS): (3, 0, 0),
    (COLUMNS, WHOLE, ROWS): (1 / 8, 1, 1),
    (COLUMNS, WHOLE, COLUMNS): (1, 1, 1),
    (COLUMNS, COLUMNS, COLUMNS): (3, 0, 0),
    (COLUMNS, ROWS, WHOLE): (0, 0, 2),
    (COLUMNS, ROWS, ROWS): (0, 0, 3),
    (COLUMNS, ROWS, COLUMNS): (0, 0, 3),
    (WHOLE, COLUMNS, COLUMNS): (2, 0, 0),
}
"""How often the inputs, the weights and the results of a layer are sent: an all-gather is 1, an all-reduce 2 times
(n - 1) / n of its data, and an all-to-all an eighth. Of 27 kinds, 17 are missing: their devices repeat work, or another
kind that ends in the same division never sends more."""


def best_plan(batch: int, widths: Sequence[int], *, input_gradient: bool = False) -> dict[str, Spec]:
    """Return the specification of each array in the plan that sends least."""
    return plan_of(priced(batch, widths, input_gradient=input_gradient)[0][1])


def plan_of(kinds: Sequence[Kind]) -> dict[str, Spec]:
    """Return the plan in which the layers are of these kinds."""
    return {
        f"{name}{i}": spec for i, (_, *specs) in enumerate(kinds, 1) for name, spec in zip("wh", specs, strict=True)
    }


def priced(batch: int, widths: Sequence[int], *, input_gradient: bool = False) -> list[tuple[float, tuple[Kind, ...]]]:
    """Return what each device sends, in elements, for each sequence of layers of the kinds in `PRICES`, least first.

    The gradient of the first layer's inputs, which `COLUMNS` sums, is needed only if the step gives it.
    """
    found: list[tuple[float, tuple[Kind, ...]]] = [(0.0, ())]
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        sizes = batch * a, a * b, batch * b
        found = [
            (
                sent
                + sum(times * size for times, size in zip(price, sizes, strict=True))
                - (2 * batch * a if i == 0 and kind[1] == COLUMNS and not input_gradient else 0),
                (*kinds, kind),
            )
            for sent, kinds in found
            for kind, price in PRICES.items()
            if kind[0] == (kinds[-1][2] if kinds else ROWS)
        ]
    return sorted(found, key=lambda plan: plan[0])
