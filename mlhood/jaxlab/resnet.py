"""ResNet in JAX: pure functions over a tree of parameters that takes the weights of the course's torch models.

Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016, table 1, with the
stride of a bottleneck in its 3x3 convolution, as `mlhood.models.resnet` has it. Images are NCHW.

>>> from mlhood.models import resnet18
>>> from mlhood.jaxlab.resnet import from_torch, logits
>>> params = from_torch(resnet18().eval())
>>> jax.jit(logits)(params, x)  # x: float32 [N, 3, 224, 224]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mlhood.jaxlab.errors import XlaError
from mlhood.kernels.geometry import Pair, geometry

Params = dict[str, Any]
EPSILON = 1e-5  # torch's, of BatchNorm2d
STAGES = ("layer1", "layer2", "layer3", "layer4")
_FIELDS = ("weight", "bias", "running_mean", "running_var")


def conv2d(
    x: jax.Array,
    w: jax.Array,
    bias: jax.Array | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    *,
    dilation: Pair = 1,
    groups: int = 1,
) -> jax.Array:
    """Convolve: the course's signature, as one operation of XLA.

    Args:
        x: float32 [N, C, H, W].
        w: float32 [F, C / groups, KH, KW].
        bias: float32 [F], or None.
        stride: One number, or down and right.
        padding: One number, (down, right) for both sides, or (top, left, bottom, right).
        dilation: One number, or down and right.
        groups: Parts that channels and filters fall into.

    Returns:
        float32 [N, F, OH, OW].

    Raises:
        KernelError: The arguments do not fit together.
    """
    g = geometry(x.shape, w.shape, stride, padding, dilation, groups)
    top, left, bottom, right = g.padding
    y = lax.conv_general_dilated(
        x, w, g.stride, ((top, bottom), (left, right)), rhs_dilation=g.dilation,
        dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=groups,
    )  # fmt: skip
    return y if bias is None else y + bias[:, None, None]


def from_torch(model: Any) -> Params:
    """Return a torch ResNet's weights as a tree of JAX arrays.

    Args:
        model: A `mlhood.models.ResNet`, or another module with torchvision's names, or its state dict.

    Returns:
        Dictionaries by the names of the modules; a stage is a list of blocks. Numbers of batches that were seen are
        left out.

    Raises:
        XlaError: It is no ResNet.
    """
    state = model if isinstance(model, Mapping) else model.state_dict() if hasattr(model, "state_dict") else {}
    params: Params = {}
    for name, value in state.items():
        *path, field = name.split(".")
        if field in _FIELDS:
            _at(params, path)[field] = jnp.array(value.numpy(force=True))
    missing = [name for name in ("conv1", "bn1", *STAGES, "fc") if name not in params]
    if missing:
        raise XlaError(
            "this is not a ResNet",
            where=type(model).__name__,
            expected="parameters with torchvision's names: " + ", ".join(("conv1", "bn1", *STAGES, "fc")),
            got=f"no {', '.join(missing)}",
        )
    return params | {stage: [params[stage][str(i)] for i in range(len(params[stage]))] for stage in STAGES}


def _at(tree: Params, path: list[str]) -> Params:
    for name in path:
        tree = tree.setdefault(name, {})
    return tree


def logits(params: Params, x: jax.Array) -> jax.Array:
    """Run the network as trained: normalisations by their running statistics.

    Args:
        params: What `from_torch` gives, of any ResNet: what is in a block says what it is.
        x: float32 [N, 3, H, W], 224 x 224 as published.

    Returns:
        float32 [N, classes].

    Raises:
        KernelError: x does not fit the first convolution.
    """
    x = jax.nn.relu(batch_norm(params["bn1"], conv2d(x, params["conv1"]["weight"], stride=2, padding=3)))
    x = max_pool(x)
    for stage in STAGES:
        for i, block in enumerate(params[stage]):
            x = residual(block, x, 2 if i == 0 and stage != "layer1" else 1)
    return jnp.mean(x, (2, 3)) @ params["fc"]["weight"].T + params["fc"]["bias"]


def residual(block: Params, x: jax.Array, stride: int) -> jax.Array:
    """Run a block: two 3x3 convolutions, or 1x1, 3x3 and 1x1, around a shortcut; [N, C, H, W] -> [N, F, OH, OW]."""
    shortcut = x
    if "downsample" in block:
        project, norm = block["downsample"]["0"], block["downsample"]["1"]
        shortcut = batch_norm(norm, conv2d(x, project["weight"], stride=stride))
    bottleneck = "conv3" in block
    steps = ((1, 1), (2, stride), (3, 1)) if bottleneck else ((1, stride), (2, 1))
    for number, step in steps:
        if number > 1:
            x = jax.nn.relu(x)
        weight = block[f"conv{number}"]["weight"]
        x = batch_norm(block[f"bn{number}"], conv2d(x, weight, stride=step, padding=weight.shape[2] // 2))
    return jax.nn.relu(x + shortcut)


def batch_norm(norm: Params, x: jax.Array) -> jax.Array:
    """Normalise each channel by its running statistics: (x - mean) / sqrt(var + EPSILON) * weight + bias."""
    scale = norm["weight"] * lax.rsqrt(norm["running_var"] + EPSILON)
    return (x - norm["running_mean"][:, None, None]) * scale[:, None, None] + norm["bias"][:, None, None]


def max_pool(x: jax.Array) -> jax.Array:
    """Take the largest of 3x3 with stride 2 and padding 1: [N, C, H, W] -> [N, C, ceil(H / 2), ceil(W / 2)]."""
    window, strides = (1, 1, 3, 3), (1, 1, 2, 2)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, ((0, 0), (0, 0), (1, 1), (1, 1)))
