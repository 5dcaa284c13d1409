"""Rules of ATen's reductions and look-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from mlhood.compiler.torch_compile.aten import RULES, Rule, aten, require, require_floats, rule
from mlhood.compiler.torch_compile.onnx_builder import OnnxBuilder, Tensor

Names = tuple[str | None, ...]


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
