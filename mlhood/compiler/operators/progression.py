"""Range: arithmetic progressions whose length is known, is that of an open axis, or is known at run time only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import common_element, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType, add_dims
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.creation import Creation
from mlhood.compiler.operators.onnx_node import OnnxNode

_SUM = re.compile(r"(.+?)([+-]\d+)\Z", re.DOTALL)


@dataclass(frozen=True)
class Range(Creation):
    """y = start, start + delta, ... as long as it does not reach limit.

    Inputs: start, limit and delta, scalars of one type, and x or none, whose shape gives the length.

    Attributes:
        length: The length if it is known, or the name of the axis if x is left out.
        axis: Which axis of x is as long as y is, less `offset`.
        offset: How much longer y is than that axis.
    """

    length: int | str = "range"
    axis: int = 0
    offset: int = 0

    arity = (3, 4)
    onnx = ("Range",)

    def infer(self, start: TensorType, limit: TensorType, delta: TensorType, x: TensorType | None = None) -> TensorType:
        require_unquantized(start, limit, delta)
        element = common_element(start, limit, delta)
        sizes = [type.size for type in (start, limit, delta)]
        scalars = all(size == 1 or isinstance(size, str) for size in sizes)
        require(scalars, "start, limit and delta must be scalars", got=f"{sizes} elements")
        return TensorType(element, (self.length if x is None else add_dims(x.shape[self.axis], self.offset),))

    def evaluate(
        self, start: np.ndarray, limit: np.ndarray, delta: np.ndarray, x: np.ndarray | None = None
    ) -> np.ndarray:
        first, step = start.reshape(()), delta.reshape(())
        return np.asarray(first + np.arange(_length(start, limit, delta)).astype(start.dtype) * step, start.dtype)

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        return writer.emit("Range", *inputs[:3], name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        """Import a range of constants as a constant; else find what value of the graph has an axis of its length."""
        bounds = [source.input(i) for i in range(3)]
        if all(map(source.is_constant, range(3))):
            start, limit, delta = (source.static(i).astype(bounds[i].type.dtype) for i in range(3))
            source.spend(_length(start, limit, delta))
            return source.constant(cls().evaluate(start, limit, delta))
        for i in range(3):
            source.refuse_input(i)
        length = _open_length(source, bounds)
        if length is None:
            return source.add(cls(source.graph.unique_name(f"{source.name}.length")), *bounds)
        if isinstance(length, int):
            return source.add(cls(max(length, 0)), *bounds)
        match = _SUM.match(length)
        candidates = [(length, 0), *([(match[1], int(match[2]))] if match else [])]
        for name, offset in candidates:
            for value in source.graph.values():
                if name in value.type.shape:
                    return source.add(cls(axis=value.type.shape.index(name), offset=offset), *bounds, value)
        return source.add(cls(length), *bounds)


def _length(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> int:
    first, last, step = (x.reshape(()).item() for x in (start, limit, delta))
    require(step != 0, "the step of a range cannot be 0")
    if start.dtype.kind == "f":
        count = np.ceil((np.float64(last) - np.float64(first)) / np.float64(step))
        require(bool(np.isfinite(count)), "the length of a range must be finite", got=f"{first}, {last}, {step}")
        return max(int(count), 0)
    return max(-((first - last) // step), 0)


def _open_length(source: OnnxNode, bounds: list[Value]) -> Dim | None:
    """Return the length of a range with step 1, which may be an expression of open axes; None if it is not known."""
    if bounds[0].type.dtype.kind not in "iu":
        return None
    known = [source.known_dims(i) for i in range(3)]
    if any(dims is None or len(dims) != 1 for dims in known):
        return None
    start, limit, delta = (dims[0] for dims in known if dims is not None)
    if delta != 1:
        return None
    return _difference(limit, start)


def _difference(limit: Dim, start: Dim) -> Dim | None:
    if isinstance(start, int):
        return add_dims(limit, -start)
    if not isinstance(limit, str):
        return None
    before, after = f"({start})+(", f")+({start})"  # as add_dims writes sums of two open axes
    if limit.startswith(before):
        return limit.removeprefix(before).removesuffix(")")
    if limit.endswith(after):
        return limit.removesuffix(after).removeprefix("(")
    if limit.startswith(start) and re.fullmatch(r"[+-]\d+", limit.removeprefix(start)):
        return int(limit.removeprefix(start))
    return None


OPERATORS = (Range,)
