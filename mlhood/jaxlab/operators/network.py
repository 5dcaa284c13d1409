"""ResNet as a function of its operators: the same lines run in NumPy, in JAX, or with whoever has these names.

Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016, table 1, with the
stride of a bottleneck in its 3x3 convolution, as `mlhood.models.resnet` has it. Images are NCHW.

>>> from mlhood.jaxlab.operators.network import forward, tree
>>> from mlhood.jaxlab.operators import no_jax, with_jax
>>> params = tree({name: value.numpy() for name, value in resnet18().eval().state_dict().items()})
>>> forward(no_jax, params, x)                      # x: float32 [N, 3, 224, 224]
>>> jax.jit(partial(forward, with_jax))(params, x)  # the same as one program
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlhood.errors import XlaError

Params = dict[str, Any]
STAGES = ("layer1", "layer2", "layer3", "layer4")
PARTS = ("conv1", "bn1", *STAGES, "fc")
_COUNTERS = "num_batches_tracked"


def tree(state: Mapping[str, Any]) -> Params:
    """Return arrays by dotted names as nested dictionaries: {"layer1": {"0": {"conv1": {"weight": ...}}}}.

    Numbers of batches that a normalisation has seen in training are left out: nothing reads them.

    Raises:
        XlaError: A name is the beginning of another.
    """
    params: Params = {}
    for name, value in state.items():
        *path, field = name.split(".")
        if field != _COUNTERS:
            _inner(params, path, name)[field] = value
    return params


def _inner(params: Params, path: list[str], name: str) -> Params:
    for part in path:
        params = params.setdefault(part, {})
        if not isinstance(params, dict):
            raise XlaError("a name stands for an array and for a tree", where=name, got=f"an array at {part!r}")
    return params


def check_resnet(params: Mapping[str, Any], where: str) -> None:
    """Refuse a tree that is no ResNet's.

    Raises:
        XlaError: A part is missing.
    """
    missing = [name for name in PARTS if name not in params]
    if missing:
        raise XlaError("this is not a ResNet", where=where, got=f"no {', '.join(missing)}",
                       expected="parameters with torchvision's names: " + ", ".join(PARTS))  # fmt: skip


def forward(ops: Any, params: Params, x: Any) -> Any:
    """Run the network as trained: normalisations by their running statistics.

    Args:
        ops: Has the operators: `no_jax`, `with_jax`, or a namespace with functions of these names.
        params: What `tree` gives of any ResNet: what is in a block says what it is.
        x: float32 [N, 3, H, W], 224 x 224 as published.

    Returns:
        Logits, float32 [N, classes].

    Raises:
        KernelError: x does not fit the first convolution.
    """
    x = ops.max_pool(_fused(ops, params, "1", x, 2))
    for stage in STAGES:
        blocks = params[stage]
        for i in range(len(blocks)):  # not in the dictionary's order: JAX sorts names, and "10" comes before "2"
            x = block(ops, blocks[str(i)], x, 2 if i == 0 and stage != "layer1" else 1)
    return ops.dense(ops.global_average_pool(x), params["fc"]["weight"], params["fc"]["bias"])


def block(ops: Any, params: Params, x: Any, stride: int) -> Any:
    """Run a block: two 3x3 convolutions, or 1x1, 3x3 and 1x1, around a shortcut.

    Args:
        ops: As for `forward`.
        params: The block's: conv1, bn1, conv2, bn2, with a bottleneck conv3 and bn3, with a projection downsample.
        x: float32 [N, C, H, W].
        stride: Of the first 3x3 convolution and of the projection.

    Returns:
        float32 [N, F, OH, OW].
    """
    shortcut = x
    if "downsample" in params:
        projection = ops.conv2d(x, params["downsample"]["0"]["weight"], stride=stride)
        shortcut = _normal(ops, params["downsample"]["1"], projection)
    if "conv3" in params:
        y = _fused(ops, params, "2", _fused(ops, params, "1", x, 1), stride)
        last = "3"
    else:
        y = _fused(ops, params, "1", x, stride)
        last = "2"
    w = params[f"conv{last}"]["weight"]
    y = _normal(ops, params[f"bn{last}"], ops.conv2d(y, w, padding=w.shape[2] // 2))
    return ops.relu(ops.add(y, shortcut))


def fused_block(
    ops: Any,
    x: Any,
    w: Any,
    mean: Any,
    var: Any,
    weight: Any,
    bias: Any,
    stride: int = 1,
    padding: int = 0,
) -> Any:
    """Return relu(batch_norm(conv2d(x))), which XLA makes fewer passes of than operators one by one can.

    Args:
        ops: As for `forward`.
        x: float32 [N, C, H, W].
        w: float32 [F, C, KH, KW].
        mean: float32 [F], as are var, weight and bias.
        var: Variance.
        weight: Factor after the normalisation.
        bias: Summand after it.
        stride: Of the convolution.
        padding: Of the convolution.

    Returns:
        float32 [N, F, OH, OW].
    """
    return ops.relu(ops.batch_norm(ops.conv2d(x, w, stride=stride, padding=padding), mean, var, weight, bias))


def _fused(ops: Any, params: Params, number: str, x: Any, stride: int) -> Any:
    w, norm = params[f"conv{number}"]["weight"], params[f"bn{number}"]
    statistics = norm["running_mean"], norm["running_var"], norm["weight"], norm["bias"]
    return fused_block(ops, x, w, *statistics, stride, w.shape[2] // 2)


def _normal(ops: Any, norm: Params, x: Any) -> Any:
    return ops.batch_norm(x, norm["running_mean"], norm["running_var"], norm["weight"], norm["bias"])
