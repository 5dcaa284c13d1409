"""Rules of ATen's operators that move, copy or create elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mlhood.compiler.torch_compile.aten import aten, require, rule
from mlhood.compiler.torch_compile.onnx_builder import OnnxBuilder, Tensor

_MAX_ARANGE = 2**16


@rule(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)
def _reshape(b: OnnxBuilder, x: Tensor, *_: Any) -> str:
    return b.emit("Reshape", x.name, b.constant(np.array(b.output.shape, np.int64)))


@rule(aten.permute.default)
def _permute(b: OnnxBuilder, x: Tensor, axes: Sequence[int]) -> str:
    return b.emit("Transpose", x.name, perm=[axis % x.rank for axis in axes] or None)


@rule(aten.expand.default)
def _expand(b: OnnxBuilder, x: Tensor, *_: Any) -> str:
    return b.emit("Expand", x.name, b.constant(np.array(b.output.shape, np.int64)))


@rule(aten.repeat.default)
def _repeat(b: OnnxBuilder, x: Tensor, repeats: Sequence[int]) -> str:
    leading = [1] * (len(repeats) - x.rank)
    aligned = b.emit("Reshape", x.name, b.constant([*leading, *x.shape])) if leading else x.name
    return b.emit("Tile", aligned, b.constant([*repeats]))


@rule(aten.cat.default)
def _cat(b: OnnxBuilder, tensors: Sequence[Tensor], axis: int = 0) -> str:
    # torch skips vectors of length 0, whatever the rank of the others
    parts = [b.cast(x, b.output.dtype) for x in tensors if x.shape != (0,)]
    require(bool(parts), "nothing")
    return b.emit("Concat", *parts, axis=axis)


@rule(aten.slice.Tensor)
def _take_slice(
    b: OnnxBuilder, x: Tensor, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> str:
    length = x.shape[axis]
    bounds = slice(start, end, step).indices(length)
    return b.emit("Slice", x.name, *(b.constant([n]) for n in (bounds[0], bounds[1], axis, step)))


@rule(aten.select.int)
def _select(b: OnnxBuilder, x: Tensor, axis: int, position: int) -> str:
    return b.emit("Gather", x.name, b.constant(position % x.shape[axis]), axis=axis)


@rule(aten.split_with_sizes.default)
def _split(b: OnnxBuilder, x: Tensor, sizes: Sequence[int], axis: int = 0) -> tuple[str, ...]:
    return b.emit_all("Split", len(sizes), x.name, b.constant([*sizes]), axis=axis)


@rule(aten.unbind.int)
def _unbind(b: OnnxBuilder, x: Tensor, axis: int = 0) -> tuple[str, ...]:
    return tuple(b.emit("Gather", x.name, b.constant(i), axis=axis) for i in range(x.shape[axis]))


@rule(aten.flip.default)
def _flip(b: OnnxBuilder, x: Tensor, axes: Sequence[int]) -> str:
    count = len(axes)
    require(count > 0, "no axis")
    bounds = [[-1] * count, [-(2**31)] * count, [*axes], [-1] * count]
    return b.emit("Slice", x.name, *map(b.constant, bounds))


@rule(aten.constant_pad_nd.default)
def _pad(b: OnnxBuilder, x: Tensor, amounts: Sequence[int], value: Any = 0) -> str:
    before, after = [0] * x.rank, [0] * x.rank
    for i in range(len(amounts) // 2):  # torch counts from the last axis
        before[-1 - i], after[-1 - i] = amounts[2 * i : 2 * i + 2]
    return b.emit("Pad", x.name, b.constant(before + after), b.constant(value, x.dtype))


@rule(aten.full.default, aten.full_like.default)
def _full(b: OnnxBuilder, like: Tensor | Sequence[int], value: Any, *_: Any) -> str:
    element = b.constant(value, b.output.dtype)
    return b.emit("Expand", element, b.constant(np.array(b.output.shape, np.int64)))


@rule(aten.scalar_tensor.default)
def _scalar_tensor(b: OnnxBuilder, value: Any, *_: Any) -> str:
    return b.emit("Identity", b.constant(value, b.output.dtype))


@rule(aten.arange.start_step)
def _arange(b: OnnxBuilder, start: Any, end: Any, step: Any = 1, *_: Any) -> str:
    require(math.prod(b.output.shape) <= _MAX_ARANGE, "many numbers")
    if not b.output.dtype.is_floating_point:
        start, step = int(start), int(step)
    numbers = start + step * np.arange(b.output.shape[0])
    return b.emit("Identity", b.constant(numbers, b.output.dtype))
