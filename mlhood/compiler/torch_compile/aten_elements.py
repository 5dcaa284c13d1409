"""Rules of ATen's operators that move, copy or create elements, of reductions, and of look-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mlhood.compiler.torch_compile.aten import RULES, Rule, aten, require, require_floats, rule
from mlhood.compiler.torch_compile.onnx_builder import OnnxBuilder, Tensor

Names = tuple[str | None, ...]
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


# -- reductions and look-ups


def reduce(b: OnnxBuilder, operator: str, x: Tensor, axes: Sequence[int] | None, keep: bool) -> str:
    """Return the name of a tensor reduced over some axes; over all, if `axes` is empty or None."""
    require(x.rank > 0 and math.prod(x.shape) > 0, "a single number, or nothing to reduce")
    chosen = [*axes] if axes else [*range(x.rank)]
    return b.emit(operator, b.cast(x, b.output.dtype), b.constant(chosen), keepdims=int(keep))


@rule(aten.mean.dim, aten.mean.default)
def _mean(b: OnnxBuilder, x: Tensor, axes: Any = None, keep: bool = False, dtype: Any = None) -> str:
    return reduce(b, "ReduceMean", x, axes if isinstance(axes, Sequence) else None, keep)


@rule(aten.sum.dim_IntList)
def _total(b: OnnxBuilder, x: Tensor, axes: Sequence[int] | None, keep: bool = False, dtype: Any = None) -> str:
    return reduce(b, "ReduceSum", x, axes, keep)


@rule(aten.sum.default)
def _total_of_all(b: OnnxBuilder, x: Tensor, dtype: Any = None) -> str:
    return reduce(b, "ReduceSum", x, None, False)


def _bound(operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, axes: Sequence[int] = (), keep: bool = False) -> str:
        require(x.dtype != torch.bool, "bools")
        return reduce(b, operator, x, axes, keep)

    return translate


RULES.update({aten.amax.default: _bound("ReduceMax"), aten.amin.default: _bound("ReduceMin")})


@rule(aten.var.correction)
def _variance(
    b: OnnxBuilder, x: Tensor, axes: Sequence[int] | None = None, correction: float | None = None, keep: bool = False
) -> str:
    require_floats(b)
    chosen = [*axes] if axes else [*range(x.rank)]
    count = math.prod(x.shape[axis] for axis in chosen)
    divisor = count - (1 if correction is None else correction)
    require(x.rank > 0 and divisor > 0, "too few elements")
    over = b.constant(chosen)
    difference = b.emit("Sub", x.name, b.emit("ReduceMean", x.name, over))
    squares = b.emit("ReduceSum", b.emit("Mul", difference, difference), over, keepdims=int(keep))
    return b.emit("Div", squares, b.constant(divisor, x.dtype))


def _reduction_of_bools(operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, axes: Any = None, keep: bool = False) -> str:
        require(x.rank > 0 and math.prod(x.shape) > 0, "a single number, or nothing to reduce")
        require(b.output.dtype == torch.bool, "bytes")
        chosen = [axes] if isinstance(axes, int) else [*axes] if axes else [*range(x.rank)]
        numbers = b.emit("Cast", b.cast(x, torch.bool), to=1)
        reduced = b.emit(operator, numbers, b.constant(chosen), keepdims=int(keep))
        return b.emit("Cast", reduced, to=9)

    return translate


for _name, _onnx in {"any": "ReduceMax", "all": "ReduceMin"}.items():
    for _overload in ("dim", "default", "dims"):
        RULES[getattr(getattr(aten, _name), _overload)] = _reduction_of_bools(_onnx)


def _place(operator: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, axis: int | None = None, keep: bool = False) -> str:
        require(x.rank > 0 and not (axis is None and keep) and math.prod(x.shape) > 0, "a single number")
        flat = b.emit("Reshape", x.name, b.constant([-1])) if axis is None else x.name
        return b.emit(operator, flat, axis=axis or 0, keepdims=int(keep))

    return translate


RULES.update({aten.argmax.default: _place("ArgMax"), aten.argmin.default: _place("ArgMin")})


@rule(aten.cumsum.default)
def _cumsum(b: OnnxBuilder, x: Tensor, axis: int, dtype: Any = None) -> str:
    require(x.rank > 0, "a single number")
    return b.emit("CumSum", b.cast(x, b.output.dtype), b.constant(axis))


@rule(aten.topk.default)
def _topk(b: OnnxBuilder, x: Tensor, k: int, axis: int = -1, largest: bool = True, ordered: bool = True) -> Names:
    require(x.rank > 0, "a single number")
    return b.emit_all("TopK", 2, x.name, b.constant([k]), axis=axis, largest=int(largest), sorted=int(ordered))


def _extreme(kind: str) -> Rule:
    def translate(b: OnnxBuilder, x: Tensor, axis: int, keep: bool = False) -> Names:
        require(x.rank > 0 and math.prod(x.shape) > 0 and x.dtype != torch.bool, "a single number, nothing, or bools")
        place = b.emit(f"Arg{kind}", x.name, axis=axis, keepdims=int(keep)) if b.used[1] else None
        return b.emit(f"Reduce{kind}", x.name, b.constant([axis]), keepdims=int(keep)), place

    return translate


RULES.update({aten.max.dim: _extreme("Max"), aten.min.dim: _extreme("Min")})


@rule(aten.prod.dim_int, aten.prod.default)
def _product(b: OnnxBuilder, x: Tensor, axis: Any = None, keep: bool = False, dtype: Any = None) -> str:
    return reduce(b, "ReduceProd", x, [axis] if isinstance(axis, int) else None, bool(keep))


@rule(aten.linalg_vector_norm.default)
def _vector_norm(
    b: OnnxBuilder,
    x: Tensor,
    order: float = 2,
    axes: Sequence[int] | None = None,
    keep: bool = False,
    dtype: Any = None,
) -> str:
    require(order in (1, 2), "another norm")
    return reduce(b, f"ReduceL{order:.0f}", x, axes, keep)


def _from_the_start(b: OnnxBuilder, indices: Tensor, length: int) -> str:
    """Return indices with negative ones out of range: an error as in torch, where ONNX counts from the end."""
    negative = b.emit("Less", indices.name, b.constant(0, indices.dtype))
    return b.emit("Where", negative, b.constant(length, indices.dtype), indices.name)


@rule(aten.embedding.default)
def _embedding(b: OnnxBuilder, table: Tensor, indices: Tensor, *_: Any) -> str:
    return b.emit("Gather", table.name, _from_the_start(b, indices, table.shape[0]))


@rule(aten.index_select.default)
def _index_select(b: OnnxBuilder, x: Tensor, axis: int, indices: Tensor) -> str:
    require(x.rank > 0 and indices.rank == 1, "a single number")
    return b.emit("Gather", x.name, _from_the_start(b, indices, x.shape[axis]), axis=axis)


@rule(aten.index.Tensor)
def _index(b: OnnxBuilder, x: Tensor, indices: Sequence[Tensor | None]) -> str:
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    require(len(given) == 1 and given[0][1].dtype != torch.bool, "masks, and indices of several axes")
    return b.emit("Gather", x.name, given[0][1].name, axis=given[0][0])


@rule(aten.gather.default)
def _gather(b: OnnxBuilder, x: Tensor, axis: int, indices: Tensor, sparse: bool = False) -> str:
    require(x.rank > 0 and indices.rank == x.rank, "a single number")
    return b.emit("GatherElements", x.name, _from_the_start(b, indices, x.shape[axis]), axis=axis)
