"""The loop nest of kernels that visit every element of strided operands.

From the outside: a box of up to `MAX_OUTER` dimensions whose points are taken in order, rows, and columns. Axes are
merged where all operands allow it. A task is a block of points, rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlhood.errors import KernelError
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, Int, Pointer

TASK = 8192  # elements; taking a task costs about as much as a hundred elements
MAX_OUTER = 6
LOOPS = (
    *("tasks", "outer_rank", "outer", "rows", "columns"),
    *("outer_block", "row_block", "column_block", "row_blocks", "column_blocks"),
)


@dataclass(frozen=True)
class Dimension:
    """A dimension of a loop nest: its size, and the stride in elements of each operand."""

    size: int
    strides: tuple[int, ...]


def broadcast_strides(shape: Sequence[int], out_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of a contiguous array, by axis of the shape that it is broadcast to.

    Raises:
        KernelError: If it cannot be broadcast.
    """
    padded = (1,) * (len(out_shape) - len(shape)) + tuple(shape)
    if len(padded) != len(out_shape) or any(p not in (1, size) for p, size in zip(padded, out_shape, strict=True)):
        raise KernelError("the operand cannot be broadcast", expected=f"to {list(out_shape)}", got=list(shape))
    return tuple(0 if size == 1 else math.prod(padded[axis + 1 :]) for axis, size in enumerate(padded))


def collapsed(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[Dimension]:
    """Return the dimensions of a loop nest over the shape, with adjacent axes merged where every operand allows it.

    Args:
        shape: Sizes of the axes.
        strides: In elements, of each operand, by axis.

    Returns:
        At least one dimension; none of size 1 beside another one.
    """
    dimensions: list[Dimension] = []
    for size, steps in zip(shape, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if dimensions and all(a == b * size for a, b in zip(dimensions[-1].strides, steps, strict=True)):
            dimensions[-1] = Dimension(dimensions[-1].size * size, steps)
        else:
            dimensions.append(Dimension(size, steps))
    return dimensions or [Dimension(1, (1,) * len(strides))]


def loop_values(
    dimensions: Sequence[Dimension], operands: Sequence[str], width: int = 1, most_columns: int = TASK
) -> dict[str, int]:
    """Return the fields of the argument block that describe a loop nest, all but the addresses.

    Args:
        dimensions: From the outermost to the columns.
        operands: Names of the operands, in the order of the strides.
        width: Elements of a column.
        most_columns: Columns of a task; a task has more rows if it has few columns.

    Raises:
        KernelError: If there are too many dimensions.
    """
    if len(dimensions) > MAX_OUTER + 2:
        shape = [dimension.size for dimension in dimensions]
        raise KernelError("too many dimensions", expected=f"at most {MAX_OUTER + 2} that cannot be merged", got=shape)
    unit = Dimension(1, (0,) * len(operands))
    nest = [unit] * (MAX_OUTER + 2 - len(dimensions)) + list(dimensions)
    outer, (rows, columns) = nest[-3::-1], nest[-2:]
    values = _blocks(
        math.prod(dimension.size for dimension in outer), rows.size, columns.size, TASK // width, most_columns
    )
    values["outer_rank"] = max(0, len(dimensions) - 2)
    values |= {f"size{d}": dimension.size for d, dimension in enumerate(outer)}
    for i, name in enumerate(operands):
        values |= {f"{name}_step": columns.strides[i], f"{name}_row": rows.strides[i]}
        values |= {f"{name}_stride{d}": dimension.strides[i] for d, dimension in enumerate(outer)}
    return values


def _blocks(outer: int, rows: int, columns: int, task: int, most_columns: int) -> dict[str, int]:
    """Return the loop bounds for tasks of about `task` columns; there is none if a size is 0."""
    if not outer * rows * columns:
        return {**dict.fromkeys(LOOPS, 0), "row_blocks": 1, "column_blocks": 1}
    column_block = min(columns, task, most_columns)
    row_block = min(rows, max(1, task // column_block))
    outer_block = min(outer, max(1, task // (column_block * row_block)))
    column_blocks, row_blocks = -(-columns // column_block), -(-rows // row_block)
    tasks = -(-outer // outer_block) * row_blocks * column_blocks
    sizes = (tasks, 0, outer, rows, columns, outer_block, row_block, column_block, row_blocks, column_blocks)
    return dict(zip(LOOPS, sizes, strict=True))


# -- the generated code


def fields(operands: Sequence[str]) -> tuple[str, ...]:
    """Return the fields of a loop nest over operands: their addresses, and their strides in elements.

    The strides are those of the columns (`_step`), of the rows (`_row`), and of the outer dimensions, the innermost of
    them first.
    """
    steps, rows = (tuple(f"{name}_{axis}" for name in operands) for axis in ("step", "row"))
    outer = [f"{name}{d}" for name in ("size", *(f"{name}_stride" for name in operands)) for d in range(MAX_OUTER)]
    return *LOOPS, *operands, *steps, *rows, *outer


@dataclass(frozen=True)
class LoopBlock:
    """A block of rows and columns at one point of the outer box.

    Args:
        starts: Address of each operand's element in row 0, column 0.
        rows: First row, and last one + 1.
        columns: First column, and last one + 1.
    """

    starts: list[Pointer]
    rows: tuple[Int, Int]
    columns: tuple[Int, Int]


@contextmanager
def blocks(arguments: Arguments, operands: Sequence[str], element: Any = FLOAT) -> Iterator[LoopBlock]:
    """Build the loops over tasks and over their points of the outer box; the `with` block is their body."""
    f = {name: arguments.integer(name) for name in LOOPS}
    with arguments.tasks(f["tasks"]) as task:
        columns = _range(task % f["column_blocks"], f["column_block"], f["columns"])
        row_task = task // f["column_blocks"]
        rows = _range(row_task % f["row_blocks"], f["row_block"], f["rows"])
        first, stop = _range(row_task // f["row_blocks"], f["outer_block"], f["outer"])
        with arguments.code.loop(first, stop) as point:
            offsets = _offsets(arguments, operands, point)
            pairs = zip(operands, offsets, strict=True)
            starts = [arguments.pointer(name, element).at(offset) for name, offset in pairs]
            yield LoopBlock(starts, rows, columns)


def _range(index: Int, size: Int, limit: Int) -> tuple[Int, Int]:
    first = index * size
    return first, (first + size).minimum(limit)


def _offsets(arguments: Arguments, operands: Sequence[str], point: Int) -> list[Int]:
    """Return the operands' offsets, in elements, of a point of the outer box."""
    code, words, indices = arguments.code, arguments.words, arguments.indices
    rest = code.variable(INDEX, point.value)
    offsets = [code.variable(INDEX, INDEX(0)) for _ in operands]
    with code.loop(0, arguments.integer("outer_rank")) as dimension:
        size = words.at(dimension + indices["size0"]).load_int()
        coordinate = Int(code.builder, rest.get()) % size
        rest.set((Int(code.builder, rest.get()) // size).value)
        for name, offset in zip(operands, offsets, strict=True):
            stride = words.at(dimension + indices[f"{name}_stride0"]).load_int()
            offset.set((Int(code.builder, offset.get()) + coordinate * stride).value)
    return [Int(code.builder, offset.get()) for offset in offsets]
