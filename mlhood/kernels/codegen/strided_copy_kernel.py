"""Copies of boxes between strided positions of two buffers, and boxes filled with one value.

Elements are moved as integers of 1, 2, 4 or 8 bytes. How a row is copied depends on its strides:

- "vectors": it is contiguous in the result, and in the source contiguous or a single element;
- "elements": one by one; where the source is contiguous from row to row instead of along a row, a task is a block of
  rows and columns that fits into the cache;
- "transpose": that case for elements of 4 bytes, in vector registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen import loop_nest
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.codegen.transposition import transposer

OPERANDS = ("out", "x")
FIELDS = (*loop_nest.fields(OPERANDS), "out_offset", "x_offset", "fill")
_UNROLL = 4

Inner = Literal["vectors", "elements", "transpose"]
Source = Literal["strided", "single", "fill"]


def build(target: Target, inner: Inner, source: Source, itemsize: int) -> str:
    """Return the LLVM IR of a kernel that copies a box.

    Args:
        target: The processor.
        inner: How a row is copied.
        source: What a row is copied from: elements of x, a `single` one, or the value in the field `fill`.
        itemsize: Bytes of an element.
    """
    module = ir.Module()
    transpose = transposer(module, "transpose", target) if inner == "transpose" else None
    arguments = Arguments(FIELDS, module)
    if transpose:
        _transpose_blocks(arguments, transpose)
    else:
        _copy_rows(arguments, inner, source, ir.IntType(8 * itemsize), 4 * target.lanes // itemsize)
    return arguments.finished()


@contextmanager
def _blocks(arguments: Arguments, element: Any) -> Iterator[tuple[Pointer, Pointer, Any]]:
    """Build the loops over blocks: the addresses of row 0, column 0 in the result and in the source, and the block."""
    with loop_nest.blocks(arguments, OPERANDS, element) as block:
        out, x = (start.at(arguments.integer(f"{o}_offset")) for o, start in zip(OPERANDS, block.starts, strict=True))
        yield out, x, block


def _transpose_blocks(arguments: Arguments, transpose: FunctionBuilder) -> None:
    """Transpose blocks: the columns are contiguous in the result, the rows in the source."""
    out_row, x_step = arguments.integer("out_row"), arguments.integer("x_step")
    with _blocks(arguments, FLOAT) as (out, x, block):
        (row, stop_row), (column, stop_column) = block.rows, block.columns
        source, result = x.at(column * x_step + row), out.at(row * out_row + column)
        arguments.code.call(transpose, source, x_step, stop_column - column, stop_row - row, result, out_row)


def _copy_rows(arguments: Arguments, inner: Inner, source: Source, element: Any, lanes: int) -> None:
    code, fields = arguments.code, ("out_row", "x_row", "out_step", "x_step")
    out_row, x_row, out_step, x_step = (arguments.integer(field) for field in fields)
    fill = arguments.words.at(arguments.indices["fill"]).cast(element).load()
    with _blocks(arguments, element) as (out, x, block), code.loop(*block.rows) as row:
        to_row, from_row = out.at(row * out_row), x.at(row * x_row)
        if inner == "elements":
            with code.loop(*block.columns) as i:
                to_row.at(i * out_step).store(fill if source == "fill" else from_row.at(i * x_step).load())
        else:
            repeated = {"fill": lambda: fill, "single": from_row.load, "strided": lambda: None}[source]()
            _copy_vectors(code, to_row, _loader(code, from_row, repeated), block.columns, lanes)


def _loader(code: FunctionBuilder, row: Pointer, value: Any) -> Callable[[Int, int], Any]:
    """Return a function that loads a number of elements of a row, or that repeats a value."""
    if value is None:
        return lambda i, count: row.at(i).load(count)
    return lambda i, count: code.splat(value, count)


def _copy_vectors(
    code: FunctionBuilder, out: Pointer, load: Callable[[Int, int], Any], columns: tuple[Int, Int], lanes: int
) -> None:
    """Copy the elements of a row from the first to the last of the columns."""
    first, stop = columns
    length = stop - first
    for vectors in (_UNROLL, 1):
        end = stop - (stop - first) % (lanes * vectors)
        with code.loop(first, end, lanes * vectors) as i:
            values = [load(i + v * lanes, lanes) for v in range(vectors)]
            for v, value in enumerate(values):
                out.at(i + v * lanes).store(value)
        first = end
    with code.builder.if_then(first < stop), code.builder.if_else(length < lanes) as (short, long):
        with short:
            _copy_few(code, out, load, first, stop, lanes)
        with long:  # some elements are copied twice
            out.at(stop - lanes).store(load(stop - lanes, lanes))


def _copy_few(
    code: FunctionBuilder, out: Pointer, load: Callable[[Int, int], Any], first: Int, stop: Int, lanes: int
) -> None:
    """Copy fewer elements than a vector has: half a vector, a quarter, ..., as the number of elements requires."""
    builder, position, size = code.builder, code.variable(INDEX, first.value), lanes // 2
    while size:
        is_copied = builder.icmp_signed("!=", builder.and_((stop - first).value, INDEX(size)), INDEX(0))
        with builder.if_then(is_copied):
            i = Int(builder, position.get())
            out.at(i).store(load(i, size))
            position.set((i + size).value)
        size //= 2
