"""ResNet and LeNet as functions of their operators: the same code runs in NumPy, in JAX and under differentiation.

Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016, table 1, with the
stride of a bottleneck in its 3x3 convolution, as in `mlhood.models.resnet`. Images are NCHW.

>>> from mlhood.jaxlab.operators.network import forward, tree
>>> from mlhood.jaxlab.operators import no_jax, with_jax
>>> params = tree({name: value.numpy() for name, value in resnet18().eval().state_dict().items()})
>>> forward(no_jax, params, x)                      # x: float32 [N, 3, 224, 224]
>>> jax.jit(partial(forward, with_jax))(params, x)  # the same, compiled into one program
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Params = dict[str, Any]
STAGES = ("layer1", "layer2", "layer3", "layer4")
_COUNTERS = "num_batches_tracked"


def tree(state: Mapping[str, Any]) -> Params:
    """Return arrays by dotted names as nested dictionaries: {"layer1": {"0": {"conv1": {"weight": ...}}}}.

    Batch normalisation's `num_batches_tracked` is dropped: nothing reads it.
    """
    params: Params = {}
    for name, value in state.items():
        *path, field = name.split(".")
        if field != _COUNTERS:
            subtree = params
            for part in path:
                subtree = subtree.setdefault(part, {})
            subtree[field] = value
    return params


def forward(ops: Any, params: Params, x: Any) -> Any:
    """Run a ResNet in inference mode: batch normalisation uses the running statistics.

    Args:
        ops: The operators: `no_jax`, `with_jax`, or a namespace with the same functions.
        params: What `tree` returns for any ResNet; the kind of a block follows from its parameters.
        x: float32 [N, 3, H, W], 224 x 224 as published.

    Returns:
        Logits, float32 [N, classes].

    Raises:
        KernelError: x does not fit the first convolution.
    """
    x = ops.max_pool(_conv_bn_relu(ops, params, "1", x, 2))
    for stage in STAGES:
        blocks = params[stage]
        for i in range(len(blocks)):  # not in the dictionary's order: JAX sorts keys, and "10" precedes "2"
            x = block(ops, blocks[str(i)], x, 2 if i == 0 and stage != "layer1" else 1)
    return ops.dense(ops.global_average_pool(x), params["fc"]["weight"], params["fc"]["bias"])


def block(ops: Any, params: Params, x: Any, stride: int) -> Any:
    """Run a residual block: two 3x3 convolutions, or 1x1, 3x3 and 1x1, and the shortcut around them.

    Args:
        ops: As for `forward`.
        params: The block's: conv1, bn1, conv2, bn2, in a bottleneck conv3 and bn3, with a projection downsample.
        x: float32 [N, C, H, W].
        stride: Stride of the first 3x3 convolution and of the projection.

    Returns:
        float32 [N, F, OH, OW].
    """
    shortcut = x
    if "downsample" in params:
        projection = ops.conv2d(x, params["downsample"]["0"]["weight"], stride=stride)
        shortcut = _batch_norm(ops, params["downsample"]["1"], projection)
    if "conv3" in params:
        y = _conv_bn_relu(ops, params, "2", _conv_bn_relu(ops, params, "1", x, 1), stride)
        last = "3"
    else:
        y = _conv_bn_relu(ops, params, "1", x, stride)
        last = "2"
    w = params[f"conv{last}"]["weight"]
    y = _batch_norm(ops, params[f"bn{last}"], ops.conv2d(y, w, padding=w.shape[2] // 2))
    return ops.relu(ops.add(y, shortcut))


def fused_block(
    ops: Any, x: Any, w: Any, mean: Any, var: Any, weight: Any, bias: Any, stride: int = 1, padding: int = 0
) -> Any:
    """Return relu(batch_norm(conv2d(x))), which XLA computes in fewer passes over memory than separate operators.

    Arguments are those of `no_jax.conv2d` and `no_jax.batch_norm`, operators as for `forward`. x: float32 [N, C, H, W],
    w: [F, C, KH, KW], the statistics: [F]; the result: [N, F, OH, OW].
    """
    return ops.relu(ops.batch_norm(ops.conv2d(x, w, stride=stride, padding=padding), mean, var, weight, bias))


def _conv_bn_relu(ops: Any, params: Params, suffix: str, x: Any, stride: int) -> Any:
    w, norm = params[f"conv{suffix}"]["weight"], params[f"bn{suffix}"]
    return fused_block(ops, x, w, *_statistics(norm), stride, w.shape[2] // 2)


def _batch_norm(ops: Any, norm: Params, x: Any) -> Any:
    return ops.batch_norm(x, *_statistics(norm))


def _statistics(norm: Params) -> tuple[Any, Any, Any, Any]:
    return norm["running_mean"], norm["running_var"], norm["weight"], norm["bias"]


def lenet(ops: Any, params: Params, x: Any) -> Any:
    """Run the network of `mlhood.models.networks`.

    Args:
        ops: As for `forward`, or `mlhood.jaxlab.autodiff`.
        params: conv1, conv2, fc1, fc2 and fc3, each with a weight and a bias: `tree` of its state dict.
        x: float32 [N, 1, 32, 32].

    Returns:
        Logits, float32 [N, classes].
    """
    for name in ("conv1", "conv2"):
        x = ops.relu(ops.conv2d(x, params[name]["weight"], params[name]["bias"]))
        x = ops.max_pool(x, kernel=2, stride=2, padding=0)
    x = x.reshape(x.shape[0], -1)
    for name in ("fc1", "fc2"):
        x = ops.relu(ops.dense(x, params[name]["weight"], params[name]["bias"]))
    return ops.dense(x, params["fc3"]["weight"], params["fc3"]["bias"])
