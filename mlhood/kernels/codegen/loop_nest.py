"""The loop nest of kernels that visit every element of strided operands: its fields, and its division into tasks.

From the outside: a box of up to `MAX_OUTER` dimensions whose points are taken in order, rows, and columns. A task is a
block of points, rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, Int, Pointer

MAX_OUTER = 6
LOOPS = (
    *("tasks", "outer_rank", "outer", "rows", "columns"),
    *("outer_block", "row_block", "column_block", "row_blocks", "column_blocks"),
)


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
