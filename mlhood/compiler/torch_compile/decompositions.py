"""How ATen's operators are written with those that torch exports to ONNX: torch's tables, corrected."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.fx import Node
from torch.onnx._internal.exporter._decomp import (
    create_onnx_friendly_decomposition_table,
    get_onnx_implemented_overloads,
)
from torch.onnx._internal.exporter._registration import ONNXRegistry

from mlhood.exchange import silence

aten = torch.ops.aten

# Operators that torch exports otherwise than it computes them: their values in corner cases, the order of equal
# elements, strides of memory, or what is an error. Torch runs them.
_LEFT = {
    *("adaptive_max_pool2d", "adaptive_max_pool3d", "angle", "as_strided", "atan2", "binary_cross_entropy"),
    *("diagonal", "diagonal_copy", "_embedding_bag", "_embedding_bag_forward_only", "empty_strided", "floor_divide"),
    *("fmod", "heaviside", "index_add", "index_put", "_unsafe_index_put", "max_unpool2d", "max_unpool3d"),
    *("multi_margin_loss", "multilabel_margin_loss_forward", "native_batch_norm", "_native_batch_norm_legit"),
    *("_native_batch_norm_legit_functional", "nll_loss_forward", "nll_loss2d_forward", "remainder", "scatter"),
    *("scatter_add", "scatter_reduce", "sgn", "sign", "signbit", "sort", "special_erfcx", "special_log_ndtr"),
    *("_scaled_dot_product_flash_attention_for_cpu", "_unsafe_masked_index", "_upsample_bilinear2d_aa"),
    *("_upsample_bicubic2d_aa", "var_mean", "std_mean"),
}
# Operators of which torch exports all results; of others, only the first one.
_SEVERAL = {aten.topk.default, aten.max.dim, aten.min.dim, aten.native_layer_norm.default}


@functools.cache
def registry() -> ONNXRegistry:
    """Return how torch exports operators of ATen's core; others are decomposed to them."""
    with silence():  # it tells of operators of torchvision
        found = ONNXRegistry.from_torchlib()
    for name, metas in list(found.functions.items()):
        target: Any = metas[0].fx_target
        tags = getattr(target, "tags", (torch.Tag.core,))
        is_core = torch.Tag.core in tags or str(target).startswith("prims.")
        if not is_core or _name(target) in _LEFT:
            del found.functions[name]
    return found


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return how operators that torch does not export are written with others."""
    table = create_onnx_friendly_decomposition_table(set(get_onnx_implemented_overloads(registry())))
    return {target: each for target, each in {**table, **_OURS}.items() if _name(target) not in _LEFT}


def _name(target: Any) -> str:
    """Return the name of an operator of ATen without its overload."""
    return str(target).removeprefix("aten.").split(".")[0]


def is_exported(node: Node) -> bool:
    """Return whether torch exports what a node computes, if it exports the operator."""
    given, value = arguments_of(node), node.meta["val"]
    if isinstance(value, (tuple, list)):
        return node.target in _SEVERAL or not any(user.args[1] for user in node.users)
    if "exponent" in given and not value.is_floating_point():
        return False  # integers wrap around in torch
    # a power of -0.5 of minus infinity is NaN in torch, and so is a clamp to NaN
    is_nan = given.get("min") != given.get("min") or given.get("max") != given.get("max")
    if given.get("rounding_mode") is not None:
        return False  # a quotient of infinities, or by the integer 0
    return not is_nan and given.get("divisor_override") is None and given.get("exponent") != -0.5


def has_elements(node: Node) -> bool:
    """Return whether the numbers among a node's arguments are elements of its result's type."""
    result, given = node.meta.get("val"), arguments_of(node)
    target: Any = node.target
    arguments = target._schema.arguments if hasattr(target, "_schema") else []
    numbers = [given.get(each.name) for each in arguments if "number" in str(each.type)]
    dtype = result.dtype if isinstance(result, torch.Tensor) else torch.float32
    return not any(isinstance(x, (int, float)) and _overflows(x, dtype) for x in numbers)


def _overflows(number: float, dtype: torch.dtype) -> bool:
    if isinstance(number, bool):
        return dtype != torch.bool
    if dtype == torch.bool or not math.isfinite(number):
        return False
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return not limits.min <= number <= limits.max


def arguments_of(node: Node) -> dict[str, Any]:
    """Return a node's arguments by their names."""
    target: Any = node.target
    names = [each.name for each in target._schema.arguments] if hasattr(target, "_schema") else []
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _split(x: torch.Tensor, size: int, dim: int = 0) -> list[torch.Tensor]:
    length = x.shape[dim]
    return [x.narrow(dim, i, min(size, length - i)) for i in range(0, max(length, 1), max(size, 1))]


def _split_with_sizes(x: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    return [x.narrow(dim, end - size, size) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _unbind(x: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    return [x.select(dim, i) for i in range(x.shape[dim])]


def _mean(x: torch.Tensor, **options: Any) -> torch.Tensor:
    return aten.mean.dim(x, [*range(x.ndim)], **options)


# Operators that torch exports as sequences of tensors, or with more nodes, or does not decompose.
_OURS: dict[Any, Callable[..., Any]] = {
    aten.mean.default: _mean,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
    aten.unbind.int: _unbind,
}
