"""The rows of P5's table: each function without JAX, the same function with it, and the arguments of both.

The operators have the shapes of ResNet-18's first stage, the pooling those of the stem. The network takes only an
image: its weights are constants, as in a deployed model. NumPy gains nothing from that, but XLA transposes them into
the layout of its convolutions once instead of in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mlhood.jaxlab.operators import network, no_jax

FUSED, NETWORK = "conv + bn + relu", "ResNet-18"
OPERATORS = ("conv", "batch norm", "relu", "max pool", "add", "global average pool", "dense", "softmax")
ROWS = (*OPERATORS, FUSED, NETWORK)
SIZE = 224
_CHANNELS, _FEATURES, _CLASSES = 64, 512, 1000


@dataclass(frozen=True)
class OperatorCase:
    """One row.

    Args:
        no_jax: The function in NumPy.
        with_jax: The function in JAX, not compiled.
        arguments: NumPy arrays, or trees of them.
    """

    no_jax: Callable[..., np.ndarray]
    with_jax: Callable[..., Any]
    arguments: tuple[Any, ...]


def cases(size: int = SIZE, seed: int = 0, without: Any = no_jax) -> dict[str, OperatorCase]:
    """Return the rows of P5's table by name, in the table's order.

    Args:
        size: Height and width of the network's image, 32 or more, 224 as published; the operators' shapes scale with
            it.
        seed: Seed of arguments and weights.
        without: The operators without JAX: `no_jax`, or a namespace with the same functions.
    """
    rng = np.random.default_rng(seed)
    image = _normal(rng, 1, _CHANNELS, size // 4, size // 4)
    large = _normal(rng, 1, _CHANNELS, size // 2, size // 2)
    small = _normal(rng, 1, _FEATURES, size // 32, size // 32)
    w, statistics = _weight(rng, _CHANNELS, _CHANNELS, 3, 3), _statistics(rng)
    features, scores = _normal(rng, 1, _FEATURES), _normal(rng, 1, _CLASSES)
    head = _weight(rng, _CLASSES, _FEATURES), _normal(rng, _CLASSES)
    photo, params = _normal(rng, 1, 3, size, size), network.tree(resnet18(seed))

    def fused(ops: Any) -> Callable[..., Any]:
        return partial(network.fused_block, ops, padding=1)

    def resnet(ops: Any) -> Callable[..., Any]:
        return partial(network.forward, ops, params)

    return {
        "conv": _operator(without, "conv2d", (image, w), padding=1),
        "batch norm": _operator(without, "batch_norm", (image, *statistics)),
        "relu": _operator(without, "relu", (image,)),
        "max pool": _operator(without, "max_pool", (large,)),
        "add": _operator(without, "add", (image, image[:, ::-1].copy())),
        "global average pool": _operator(without, "global_average_pool", (small,)),
        "dense": _operator(without, "dense", (features, *head)),
        "softmax": _operator(without, "softmax", (scores,)),
        FUSED: _case(without, fused, (image, w, *statistics)),
        NETWORK: _case(without, resnet, (photo,)),
    }


def _case(without: Any, build: Callable[[Any], Any], arguments: tuple[Any, ...]) -> OperatorCase:
    """Return the case whose two functions `build` makes from the two namespaces of operators."""
    from mlhood.jaxlab.operators import with_jax

    return OperatorCase(build(without), build(with_jax), arguments)


def _operator(without: Any, name: str, arguments: tuple[Any, ...], **options: Any) -> OperatorCase:
    return _case(without, lambda ops: partial(getattr(ops, name), **options), arguments)


def resnet18(
    seed: int = 0, widths: tuple[int, ...] = (64, 128, 256, 512), classes: int = _CLASSES
) -> dict[str, np.ndarray]:
    """Return random weights of ResNet-18 by torchvision's names, with running statistics as after training.

    Args:
        seed: Determines the weights.
        widths: Channels of the four stages.
        classes: Number of logits.
    """
    rng, channels = np.random.default_rng(seed), widths[0]
    state: dict[str, np.ndarray] = {}
    _add_conv(state, rng, "conv1", "bn1", (channels, 3, 7, 7))
    for stage, width in zip(network.STAGES, widths, strict=True):
        for i in range(2):
            state |= basic_block(rng, channels, width, f"{stage}.{i}.")
            channels = width
    return state | {"fc.weight": _weight(rng, classes, channels), "fc.bias": _normal(rng, classes)}


def basic_block(
    rng: np.random.Generator, channels: int, filters: int, prefix: str = "", *, projected: bool | None = None
) -> dict[str, np.ndarray]:
    """Return random weights of a basic block by torchvision's names.

    Args:
        rng: Draws the weights.
        channels: Channels of its input.
        filters: Channels of its output.
        prefix: Of the names.
        projected: Whether its shortcut has a projection; by default, if the number of channels changes.
    """
    state: dict[str, np.ndarray] = {}
    if channels != filters if projected is None else projected:
        _add_conv(state, rng, f"{prefix}downsample.0", f"{prefix}downsample.1", (filters, channels, 1, 1))
    _add_conv(state, rng, f"{prefix}conv1", f"{prefix}bn1", (filters, channels, 3, 3))
    _add_conv(state, rng, f"{prefix}conv2", f"{prefix}bn2", (filters, filters, 3, 3))
    return state


def _add_conv(
    state: dict[str, np.ndarray], rng: np.random.Generator, conv: str, norm: str, shape: tuple[int, ...]
) -> None:
    """Add the weights of a convolution and of its batch normalisation."""
    state[f"{conv}.weight"] = _weight(rng, *shape)
    names = ("running_mean", "running_var", "weight", "bias")
    state |= {f"{norm}.{name}": value for name, value in zip(names, _statistics(rng, shape[0]), strict=True)}


def _weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return weights that preserve the variance (He et al., Delving Deep into Rectifiers, 2015, equation 10)."""
    return _normal(rng, *shape) * np.float32(np.sqrt(2 / np.prod(shape[1:])))


def _statistics(rng: np.random.Generator, channels: int = _CHANNELS) -> tuple[np.ndarray, ...]:
    """Return mean, variance, weight and bias of a batch normalisation."""
    limits = ((-0.2, 0.2), (0.5, 2.0), (0.5, 1.0), (-0.2, 0.2))
    return tuple(rng.uniform(low, high, channels).astype(np.float32) for low, high in limits)


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)
