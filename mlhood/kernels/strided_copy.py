"""Copies of boxes between strided positions of two buffers, and boxes filled with one value, as native calls.

With them a compiler moves data: a transposition permutes the strides; a slice has an offset, and strides that are
multiples or negative; an operand that is expanded has strides of 0; the parts of a concatenation have offsets in the
result, those of a split in the source; padding is a box that is filled, and then a copy into its middle.

Elements are moved as integers of 1, 2, 4 or 8 bytes. How a row is copied depends on its strides:

- "vectors": it is contiguous in the result, and in the source contiguous or a single element;
- "elements": one by one; where the source is contiguous from row to row instead of along a row, a task is a block of
  rows and columns that fits into the cache;
- "transpose": that case for elements of 4 bytes, in vector registers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from llvmlite import ir

from mlhood.kernels import loop_nest
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.packing import transposer
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import TASK, Dimension, collapsed, loop_values
from mlhood.kernels.native import NativeCall, native_call

_BLOCK = 128  # columns of a block that is transposed; with 64 rows of 4 bytes it fits into 32 KiB
Fill = np.generic | int
OPERANDS = ("out", "x")
FIELDS = (*loop_nest.fields(OPERANDS), "out_offset", "x_offset", "fill")
_UNROLL = 4
Inner = Literal["vectors", "elements", "transpose"]
Source = Literal["strided", "single", "fill"]


def prepare(
    shape: Sequence[int],
    source_strides: Sequence[int],
    target_strides: Sequence[int],
    itemsize: int,
    source_offset: int = 0,
    target_offset: int = 0,
    fill: Fill | None = None,
    target: Target | None = None,
) -> NativeCall:
    """Return a call that sets out[target_offset + i . target_strides] = x[source_offset + i . source_strides].

    i runs over the indices of the shape; "x" and "out" must not overlap. Nothing else in "out" is written.

    Args:
        shape: Sizes of the box; at most 8 axes are left after those of size 1 are dropped and adjacent ones are merged.
        source_strides: In elements, by axis; 0 repeats an element.
        target_strides: In elements, by axis; not 0, and no two indices may have the same position.
        itemsize: Bytes of an element: 1, 2, 4 or 8.
        source_offset, target_offset: Position of the first element in its buffer, in elements.
        fill: If not None, all elements are set to this value, and there is no operand "x": a NumPy scalar of the
            itemsize (`np.float32(1)`), or an integer whose lowest bytes are stored.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If there are too many axes.
    """
    bits = 0 if fill is None else _bits(fill)
    sources = target_strides if fill is not None else source_strides  # a box that is filled has only its own strides
    dimensions, inner, source = _plan(shape, target_strides, sources, itemsize)
    if fill is not None:
        source = "fill"
    transposes = len(dimensions) > 1 and dimensions[-2].strides[1] == 1 and dimensions[-1].strides[0] == 1
    most_columns = _BLOCK if transposes else TASK
    values = loop_values(dimensions, OPERANDS, most_columns=most_columns)
    values |= {"out_offset": target_offset, "x_offset": source_offset, "fill": bits, "x": 0}
    kernel = jit.load(build, target or host(), inner, source, itemsize)
    operands = ("out",) if fill is not None else OPERANDS
    return native_call(kernel, FIELDS, values, operands, name="copy" if fill is None else "fill")


def _bits(fill: Fill) -> int:
    """Return the bytes of a value as an integer, sign-extended to 64 bits as the argument block has it."""
    if isinstance(fill, np.generic):
        fill = int.from_bytes(fill.tobytes(), sys.byteorder)
    return (int(fill) + 2**63) % 2**64 - 2**63


def _plan(
    shape: Sequence[int], target_strides: Sequence[int], source_strides: Sequence[int], itemsize: int
) -> tuple[list[Dimension], Inner, Source]:
    """Return the loop nest, and how its rows are copied: axes are ordered by their strides in the result."""
    axes = sorted(range(len(shape)), key=lambda axis: -abs(target_strides[axis]))
    axes = [axis for axis in axes if shape[axis] != 1]
    ordered = [[strides[axis] for axis in axes] for strides in (target_strides, source_strides)]
    dimensions = collapsed([shape[axis] for axis in axes], ordered)
    out_step, x_step = dimensions[-1].strides
    if out_step == 1 and x_step in (0, 1):
        return dimensions, "vectors", "strided" if x_step else "single"
    contiguous = [d for d in range(len(dimensions) - 1) if dimensions[d].strides[1] == 1]
    if out_step != 1 or not contiguous:
        return dimensions, "elements", "strided"
    rows = dimensions.pop(contiguous[-1])
    dimensions.insert(-1, rows)
    return dimensions, "transpose" if itemsize == 4 else "elements", "strided"


# -- the generated code


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
