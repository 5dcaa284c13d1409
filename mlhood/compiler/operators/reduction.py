"""Reductions along some axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mlhood.compiler.hir.operator import Operator, Permutation, namespace, require, require_unquantized
from mlhood.compiler.hir.types import Shape, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import transposed_axes, without_axes
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter


def reduced_shape(shape: Shape, axes: tuple[int, ...], keep: bool) -> Shape:
    """Return a shape without the given axes, or with length 1 for them."""
    reduced = {normalize_axis(axis, len(shape)) for axis in axes}
    require(len(reduced) == len(axes), "an axis is repeated", got=axes)
    if keep:
        return tuple(1 if i in reduced else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in reduced)


@dataclass(frozen=True)
class Reduction(Operator):
    """Base: y = function(xp, x) along `axes`, xp being the `namespace` of x; the axes keep length 1 or are removed.

    Attributes:
        axes: Which axes to reduce.
        keep: Whether they stay, with length 1.

    Class attributes:
        changes_single: Reducing a single element changes it, as the norms do.
    """

    axes: tuple[int, ...]
    keep: bool = True

    family = "pooling"
    function: ClassVar[Callable[..., Any]]
    changes_single: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return TensorType(x.element, reduced_shape(x.shape, self.axes, self.keep))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        xp = namespace(x)
        return xp.asarray(type(self).function(xp, x, axis=self.axes, keepdims=self.keep), x.dtype)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        noop = None if self.axes else True  # no axes would otherwise stand for all of them
        axes = writer.integers(self.axes)
        return writer.emit(self.name, *inputs, axes, name=name, keepdims=self.keep, noop_with_empty_axes=noop)

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation]:
        axes = transposed_axes(self.axes, permutation)
        return replace(self, axes=axes), permutation if self.keep else without_axes(permutation, axes)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Take the axes as an attribute or as an input; without any, all, or by `noop_with_empty_axes` none."""
        x = source.input(0)
        axes = source.attribute_or_input("axes", 1)
        if not axes and source.attribute("noop_with_empty_axes", 0) and not cls.changes_single:
            return source.add(Identity(), x)
        none = () if source.attribute("noop_with_empty_axes", 0) else tuple(range(x.type.rank))
        return source.add(cls(axes or none, bool(source.attribute("keepdims", 1))), x)


def mean(xp: Any, x: np.ndarray, axis: tuple[int, ...], keepdims: bool = True) -> np.ndarray:
    """Return the mean along some axes, of the element type of x; NaN without elements."""
    count = np.prod([x.shape[i] for i in axis], dtype=np.int64)
    return xp.asarray(xp.sum(x, axis=axis, keepdims=keepdims) / count.astype(x.dtype if x.dtype.kind == "f" else float))


def _extremes(dtype: np.dtype) -> tuple[Any, Any]:
    if dtype.kind == "b":
        return False, True
    if dtype.kind == "f":
        return -np.inf, np.inf
    return dtype.type(np.iinfo(dtype).min), dtype.type(np.iinfo(dtype).max)  # JAX takes an int of Python for an int64


def _log_sum_exp(xp: Any, x: np.ndarray, **options: Any) -> np.ndarray:
    top = xp.max(x, axis=options["axis"], keepdims=True, initial=_extremes(x.dtype)[0])
    top = xp.where(xp.isfinite(top), top, 0).astype(x.dtype)
    return xp.log(xp.sum(xp.exp(x - top), **options)) + top.reshape(xp.sum(x, **options).shape)


def _define(name: str, function: Callable[..., Any], doc: str, **members: Any) -> type[Reduction]:
    return type(name, (Reduction,), {"function": staticmethod(function), "onnx": (name,), "__doc__": doc, **members})


_SAME: dict[str, Any] = {"changes_single": False}

ReduceMean = _define("ReduceMean", mean, "y = the mean.", value_range=lambda operator, y, x: x, **_SAME)

REDUCTIONS = (
    ReduceMean,
    _define("ReduceSum", lambda xp, x, **options: xp.sum(x, **options), "y = the sum.", **_SAME),
    _define("ReduceProd", lambda xp, x, **options: xp.prod(x, **options), "y = the product.", **_SAME),
    _define(
        "ReduceMax",
        lambda xp, x, **options: xp.max(x, initial=_extremes(x.dtype)[0], **options),
        "y = the largest.",
        **_SAME,
    ),
    _define(
        "ReduceMin",
        lambda xp, x, **options: xp.min(x, initial=_extremes(x.dtype)[1], **options),
        "y = the smallest.",
        **_SAME,
    ),
    _define("ReduceL1", lambda xp, x, **options: xp.sum(xp.abs(x), **options), "y = the sum of |x|."),
    _define("ReduceL2", lambda xp, x, **options: xp.sqrt(xp.sum(x * x, **options)), "y = the root of the sum of x^2."),
    _define("ReduceSumSquare", lambda xp, x, **options: xp.sum(x * x, **options), "y = the sum of x^2."),
    _define("ReduceLogSum", lambda xp, x, **options: xp.log(xp.sum(x, **options)), "y = the logarithm of the sum."),
    _define("ReduceLogSumExp", _log_sum_exp, "y = the logarithm of the sum of exp(x)."),
)


@dataclass(frozen=True)
class Arg(Operator):
    """Base: y = the index of the extreme element along `axis`, int64; among equals, the first or the last."""

    axis: int
    keep: bool = True
    last: bool = False

    family = "pooling"

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return TensorType("int64", reduced_shape(x.shape, (self.axis,), self.keep))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        xp = namespace(x)
        function = getattr(xp, self.name.lower())
        if self.last:
            y = x.shape[self.axis] - 1 - function(xp.flip(x, self.axis), axis=self.axis, keepdims=self.keep)
        else:
            y = function(x, axis=self.axis, keepdims=self.keep)
        return xp.asarray(y, np.int64)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        order = {"keepdims": self.keep, "select_last_index": self.last}
        return writer.emit(self.name, *inputs, name=name, axis=self.axis, **order)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        keep, last = bool(source.attribute("keepdims", 1)), bool(source.attribute("select_last_index", 0))
        return source.add(cls(source.attribute("axis", 0), keep, last), source.input(0))


class ArgMax(Arg):
    """y = the index of the largest element."""

    onnx = ("ArgMax",)


class ArgMin(Arg):
    """y = the index of the smallest element."""

    onnx = ("ArgMin",)


OPERATORS = (*REDUCTIONS, ArgMax, ArgMin)
