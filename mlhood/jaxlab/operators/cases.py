"""The rows of P5's table: a function without JAX, the same with it, and what both are called with.

The operators have the shapes of ResNet-18: those on images as in its first stage, and as before it for the pooling.
The network is called with an image only. Its weights are known beforehand, as in what is deployed: NumPy makes no use
of that, but XLA brings them into the order that it multiplies in once, not in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from mlhood.errors import XlaError
from mlhood.jaxlab.operators import network, no_jax
from mlhood.jaxlab.tables import FUSED, NETWORK
from mlhood.kernels.geometry import geometry

SIZE = 224
_CHANNELS, _FEATURES, _CLASSES = 64, 512, 1000
_SMALLEST = 32  # the network halves an image five times


@dataclass(frozen=True)
class Case:
    """One row.

    Args:
        no_jax: In NumPy.
        with_jax: In JAX, not compiled.
        arguments: NumPy arrays, or trees of them.
        flops: Operations of one call: two for each multiply-accumulate, else one for each sum, product, comparison
            or function of a number.
    """

    no_jax: Callable[..., np.ndarray]
    with_jax: Callable[..., Any]
    arguments: tuple[Any, ...]
    flops: int


def cases(size: int = SIZE, seed: int = 0, without: Any = no_jax) -> dict[str, Case]:
    """Return the rows of P5's table by name, in its order.

    Args:
        size: Height and width of the network's image, 224 as published; what is in the network follows it.
        seed: Of arguments and weights.
        without: The operators without JAX: `no_jax`, or a namespace with functions of these names.

    Raises:
        XlaError: The image is smaller than 32 x 32.
    """
    if size < _SMALLEST:
        raise XlaError("the network halves an image five times", expected=f"at least {_SMALLEST}", got=size)
    rng = np.random.default_rng(seed)
    image = _drawn(rng, 1, _CHANNELS, size // 4, size // 4)
    large = _drawn(rng, 1, _CHANNELS, size // 2, size // 2)
    small = _drawn(rng, 1, _FEATURES, size // 32, size // 32)
    w, norm = _weight(rng, _CHANNELS, _CHANNELS, 3, 3), _statistics(rng)
    features, scores = _drawn(rng, 1, _FEATURES), _drawn(rng, 1, _CLASSES)
    head = _weight(rng, _CLASSES, _FEATURES), _drawn(rng, _CLASSES)
    product = geometry(image.shape, w.shape, 1, 1).flops
    return {
        "conv": _operator(without, "conv2d", (image, w), product, padding=1),
        "batch norm": _operator(without, "batch_norm", (image, *norm), 2 * image.size),
        "relu": _operator(without, "relu", (image,), image.size),
        "max pool": _operator(without, "max_pool", (large,), 9 * image.size),
        "add": _operator(without, "add", (image, image[:, ::-1].copy()), image.size),
        "global average pool": _operator(without, "global_average_pool", (small,), small.size),
        "dense": _operator(without, "dense", (features, *head), 2 * head[0].size),
        "softmax": _operator(without, "softmax", (scores,), 5 * scores.size),
        FUSED: _fused(without, (image, w, *norm), product + 3 * image.size, padding=1),
        NETWORK: _network(without, _drawn(rng, 1, 3, size, size), seed),
    }


def _operator(without: Any, name: str, arguments: tuple[Any, ...], flops: int, **options: Any) -> Case:
    from mlhood.jaxlab.operators import with_jax

    one, other = (partial(getattr(ops, name), **options) for ops in (without, with_jax))
    return Case(one, other, arguments, flops)


def _fused(without: Any, arguments: tuple[Any, ...], flops: int, **options: Any) -> Case:
    from mlhood.jaxlab.operators import with_jax

    one, other = (partial(network.fused_block, ops, **options) for ops in (without, with_jax))
    return Case(one, other, arguments, flops)


def _network(without: Any, image: np.ndarray, seed: int) -> Case:
    from mlhood.jaxlab.operators import with_jax

    params = network.tree(resnet18(seed))
    one, other = (partial(network.forward, ops, params) for ops in (without, with_jax))
    return Case(one, other, (image,), multiplications(params, image.shape))


def multiplications(params: network.Params, shape: tuple[int, ...]) -> int:
    """Return the operations of a ResNet's convolutions and its dense layer for images of this shape.

    The network itself is asked: it runs with operators that work out no product, only how large it would be.
    """
    found = 0

    def conv2d(x: np.ndarray, w: np.ndarray, bias: None = None, stride: int = 1, padding: int = 0) -> np.ndarray:
        nonlocal found
        g = geometry(x.shape, w.shape, stride, padding)
        found += g.flops
        return np.broadcast_to(np.float32(0), g.out_shape)

    ops = SimpleNamespace(**{**vars(no_jax), "conv2d": conv2d, "batch_norm": lambda x, *_: x})
    network.forward(ops, params, np.broadcast_to(np.float32(0), shape))
    return found + 2 * shape[0] * params["fc"]["weight"].size


def resnet18(seed: int = 0) -> dict[str, np.ndarray]:
    """Return ResNet-18's weights by torchvision's names, drawn, with statistics as training leaves them."""
    rng = np.random.default_rng(seed)
    state: dict[str, np.ndarray] = {}
    _add_conv(state, rng, "conv1", "bn1", (64, 3, 7, 7))
    channels = 64
    for stage, width in zip(network.STAGES, (64, 128, 256, 512), strict=True):
        for i in range(2):
            name = f"{stage}.{i}"
            if channels != width:
                _add_conv(state, rng, f"{name}.downsample.0", f"{name}.downsample.1", (width, channels, 1, 1))
            _add_conv(state, rng, f"{name}.conv1", f"{name}.bn1", (width, channels, 3, 3))
            _add_conv(state, rng, f"{name}.conv2", f"{name}.bn2", (width, width, 3, 3))
            channels = width
    state |= {"fc.weight": _weight(rng, _CLASSES, channels), "fc.bias": _drawn(rng, _CLASSES)}
    return state


def _add_conv(
    state: dict[str, np.ndarray], rng: np.random.Generator, conv: str, norm: str, shape: tuple[int, ...]
) -> None:
    """Add a convolution and its normalisation."""
    state[f"{conv}.weight"] = _weight(rng, *shape)
    names = ("running_mean", "running_var", "weight", "bias")
    state |= {f"{norm}.{name}": value for name, value in zip(names, _statistics(rng, shape[0]), strict=True)}


def _weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return factors that keep the size of numbers (He et al., Delving Deep into Rectifiers, 2015, equation 10)."""
    return _drawn(rng, *shape) * np.float32(np.sqrt(2 / np.prod(shape[1:])))


def _statistics(rng: np.random.Generator, channels: int = _CHANNELS) -> tuple[np.ndarray, ...]:
    """Return mean, variance, weight and bias of a normalisation."""
    limits = ((-0.2, 0.2), (0.5, 2.0), (0.5, 1.0), (-0.2, 0.2))
    return tuple(rng.uniform(low, high, channels).astype(np.float32) for low, high in limits)


def _drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)
