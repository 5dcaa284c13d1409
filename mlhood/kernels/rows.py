"""Functions along the last axis of contiguous float32 arrays as native calls: softmax, normalisation, reductions.

Arrays are [rows, length], where rows is the product of all axes but the last. A row is reduced in `_PARALLEL` vectors,
to which its vectors are added in turn (an addition would wait for the one before it), and these are then combined in
pairs: the order depends on the length and the lanes only, so any number of threads gets the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import jit, vector_math
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INT32, Int, Pointer
from mlhood.kernels.codegen.remainder import load_first, mask_of, store_first
from mlhood.kernels.codegen.steps import BINARY
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.codegen.vector_math import Combine
from mlhood.kernels.loop_nest import TASK
from mlhood.kernels.native import NativeCall, native_call

FIELDS = ("tasks", "rows", "row_block", "length", "x", "out")
NORM_FIELDS = (*FIELDS, "scale", "bias", "epsilon")
REDUCTIONS = ("Max", "Mean", "Min", "Sum")
_PARALLEL = 4
# how two values are combined, and the value that changes nothing
_SUM: tuple[Combine, float] = BINARY["Add"], 0.0
_MAXIMUM: tuple[Combine, float] = vector_math.maximum, -math.inf
_MINIMUM: tuple[Combine, float] = vector_math.minimum, math.inf


def softmax(rows: int, length: int, *, log: bool = False, target: Target | None = None) -> NativeCall:
    """Return a call that writes the softmax of each row of "x" to "out", both [rows, length].

    They may be the same memory. A row whose maximum is infinite becomes NaN, as with NumPy.

    Args:
        rows, length: The shape.
        log: Whether to write the logarithm of the softmax.
        target: The processor; this machine's by default.
    """
    kernel = jit.load(build_softmax, target or host(), bool(log))
    return native_call(kernel, FIELDS, _sizes(rows, length), ("x", "out"), name="log_softmax" if log else "softmax")


def layer_norm(
    rows: int,
    length: int,
    epsilon: float = 1e-5,
    *,
    bias: bool = True,
    target: Target | None = None,
) -> NativeCall:
    """Return a call that normalises each row of "x" [rows, length] to mean 0 and variance 1 (arXiv 1607.06450).

    The result, "out" [rows, length], is multiplied by "scale" [length]; it may be the same memory as x.

    Args:
        rows, length: The shape.
        epsilon: Is added to the variance.
        bias: Whether "bias" [length] is added to it.
        target: The processor; this machine's by default.
    """
    kernel = jit.load(build_layer_norm, target or host(), bool(bias))
    operands = ("x", "out", "scale", *(("bias",) if bias else ()))
    values = _sizes(rows, length) | {"bias": 0}
    return native_call(kernel, NORM_FIELDS, values, operands, floats={"epsilon": epsilon}, name="layer_norm")


def reduce(name: str, rows: int, length: int, target: Target | None = None) -> NativeCall:
    """Return a call that reduces each row of "x" [rows, length] to an element of "out" [rows].

    Args:
        name: One of `REDUCTIONS`: an operator of ONNX without "Reduce". NaN propagates; the reduction of nothing is 0,
            NaN for Mean, and the infinity that changes nothing for Max and Min.
        rows, length: The shape.
        target: The processor; this machine's by default.
    """
    kernel = jit.load(build_reduction, target or host(), name)
    return native_call(kernel, FIELDS, _sizes(rows, length), ("x", "out"), name=f"reduce_{name.lower()}")


def _sizes(rows: int, length: int) -> dict[str, int]:
    block = max(1, TASK // max(length, 1))
    return {"tasks": -(-rows // block), "rows": rows, "row_block": block, "length": length}


# -- the generated code


class _Rows:
    """The loop over rows, and loops over the vectors of a row."""

    def __init__(self, target: Target, fields: tuple[str, ...]) -> None:
        self.arguments, self.target, self.lanes = Arguments(fields), target, target.lanes
        self.code = self.arguments.code
        self.length = self.arguments.integer("length")

    @contextmanager
    def each(self) -> Iterator[Int]:
        """Build the loops over tasks and over the rows of a task."""
        rows, block = self.arguments.integer("rows"), self.arguments.integer("row_block")
        with self.arguments.tasks(self.arguments.integer("tasks")) as task:
            first = task * block
            with self.code.loop(first, (first + block).minimum(rows)) as row:
                yield row

    def vectors(self, body: Callable[[Int, Int | None, int], None], parallel: int = 1) -> None:
        """Build a loop over the vectors of a row.

        Args:
            body: Gets the first element, the number of elements or None if all lanes are used, and which of the
                `parallel` vectors of an iteration it is.
            parallel: Vectors per iteration.
        """
        start = self.code.constant(0)
        for count in sorted({parallel, 1}, reverse=True):
            stop = self.length - self.length % (self.lanes * count)
            with self.code.loop(start, stop, self.lanes * count) as i:
                for slot in range(count):
                    body(i + slot * self.lanes, None, slot)
            start = stop
        with self.code.builder.if_then(start < self.length):
            body(start, self.length - start, 0)

    def reduce(self, operation: tuple[Combine, float], value: Callable[[Int, Int | None], Any]) -> Any:
        """Return the reduction of a row's values, in all lanes.

        Args:
            operation: How two values are combined, and the neutral value.
            value: Gets the first element of a vector, and the number of elements or None if all lanes are used.
        """
        combine, neutral = operation
        kind = ir.VectorType(FLOAT, self.lanes)
        initial = ir.Constant(kind, [neutral] * self.lanes)
        totals = [self.code.variable(kind, initial) for _ in range(_PARALLEL)]

        def accumulate(i: Int, count: Int | None, slot: int) -> None:
            vector = value(i, count)
            if count is not None:
                vector = self.code.builder.select(mask_of(self.code, count, self.lanes), vector, initial)
            totals[slot].set(combine(self.code, totals[slot].get(), vector))

        self.vectors(accumulate, _PARALLEL)
        partial = [total.get() for total in totals]
        while len(partial) > 1:
            half = len(partial) // 2
            partial = [combine(self.code, a, b) for a, b in zip(partial[:half], partial[half:], strict=True)]
        return vector_math.across_lanes(self.code, combine, partial[0])

    def load(self, row: Pointer, i: Int, count: Int | None) -> Any:
        """Load a vector of a row; lanes beyond the row are zero."""
        if count is None:
            return row.at(i).load(self.lanes)
        return load_first(self.code, row.at(i), count, self.lanes)

    def store(self, row: Pointer, i: Int, count: Int | None, vector: Any) -> None:
        """Store a vector to a row, but nothing beyond it."""
        if count is None:
            row.at(i).store(vector)
        else:
            store_first(self.code, row.at(i), vector, count, self.target)

    def mean(self, total: Any) -> Any:
        """Divide by the length."""
        length = self.code.builder.sitofp(self.length.value, FLOAT)
        return self.code.builder.fdiv(total, self.code.splat(length, self.lanes))


def build_softmax(target: Target, log: bool) -> str:
    """Return the LLVM IR of a kernel for exp(x - m) / sum(exp(x - m)), m = max(x), or the logarithm of that."""
    rows = _Rows(target, FIELDS)
    code, builder = rows.code, rows.code.builder
    with rows.each() as row:
        x, out = (rows.arguments.pointer(name).at(row * rows.length) for name in ("x", "out"))
        largest = rows.reduce(_MAXIMUM, lambda i, count: rows.load(x, i, count))

        def exponential(i: Int, count: Int | None) -> Any:
            shifted = builder.fsub(rows.load(x, i, count), largest)
            y = vector_math.exp_of_nonpositive(code, shifted)
            rows.store(out, i, count, shifted if log else y)
            return y

        total = rows.reduce(_SUM, exponential)
        factor = vector_math.log(code, total) if log else vector_math.reciprocal(code, total)
        finish = builder.fsub if log else builder.fmul
        rows.vectors(lambda i, count, _: rows.store(out, i, count, finish(rows.load(out, i, count), factor)))
    return rows.arguments.finished()


def build_layer_norm(target: Target, bias: bool) -> str:
    """Return the LLVM IR of a kernel for (x - mean) / sqrt(variance + epsilon) times scale, with or without bias."""
    rows = _Rows(target, NORM_FIELDS)
    code, builder = rows.code, rows.code.builder
    factors, offsets = rows.arguments.pointer("scale"), rows.arguments.pointer("bias")
    epsilon = code.splat(rows.arguments.float32("epsilon"), target.lanes)
    with rows.each() as row:
        x, out = (rows.arguments.pointer(name).at(row * rows.length) for name in ("x", "out"))
        mean = rows.mean(rows.reduce(_SUM, lambda i, count: rows.load(x, i, count)))

        def difference(i: Int, count: Int | None) -> Any:
            return builder.fsub(rows.load(x, i, count), mean)

        def square(i: Int, count: Int | None) -> Any:
            return builder.fmul(distance := difference(i, count), distance)

        variance = rows.mean(rows.reduce(_SUM, square))
        factor = vector_math.reciprocal(code, vector_math.sqrt(code, builder.fadd(variance, epsilon)))

        def normalise(i: Int, count: Int | None, _: int) -> None:
            y = builder.fmul(difference(i, count), factor)
            y = builder.fmul(y, rows.load(factors, i, count))
            y = builder.fadd(y, rows.load(offsets, i, count)) if bias else y
            rows.store(out, i, count, y)

        rows.vectors(normalise)
    return rows.arguments.finished()


def build_reduction(target: Target, name: str) -> str:
    """Return the LLVM IR of a kernel that reduces each row to one element, by one of `REDUCTIONS`."""
    rows = _Rows(target, FIELDS)
    code = rows.code
    operation = {"Max": _MAXIMUM, "Min": _MINIMUM}.get(name, _SUM)
    with rows.each() as row:
        x = rows.arguments.pointer("x").at(row * rows.length)
        y = rows.reduce(operation, lambda i, count: rows.load(x, i, count))
        y = rows.mean(y) if name == "Mean" else y
        rows.arguments.pointer("out").at(row).store(code.builder.extract_element(y, INT32(0)))
    return rows.arguments.finished()
