"""Binding: the innermost loops become a call of the generated microkernel. `Nest.bind` describes the step.

The microkernel (`mlhood.kernels.microkernel`) takes, for each round of the sum, one number a row from `a`, at
distances known beforehand, and vectors of columns from `b`, one after another: tile[m, n] += a[k, m] * b[k, n].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mlhood.dataflow.nest.data import Access, Bound
from mlhood.dataflow.nest.schedule import find
from mlhood.dataflow.nest.trips import trips
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

MOST_REGISTERS = 64  # vectors in a tile: larger ones only spill to memory


def bind(nest: Nest, rows: str, columns: str, sums: Sequence[str]) -> Nest:
    """Return the nest with its innermost loops, `rows`, `columns` and `sums`, bound to the microkernel."""
    if nest.bound:
        raise NestError("a microkernel is bound already", got=f"rows {nest.bound.rows}, columns {nest.bound.columns}")
    depth = _depth(nest, [rows, columns, *sums])
    inside = tuple(name for name in nest.names[depth:] if name in sums)
    a, b = _roles(nest, rows, columns, inside)
    bound = Bound(depth, inside, rows, columns, a.array, b.array)
    _check_trips(nest, bound)
    _check_tile(nest, bound)
    _check_layout(nest, bound, nest.read(a), nest.read(b))
    order = [replace(find(nest, name), kind="bound") for name in (*inside, rows, columns)]
    return replace(nest, loops=(*nest.loops[:depth], *order), bound=bound)


def _depth(nest: Nest, names: Sequence[str]) -> int:
    """Return how many loops are outside the microkernel, whose loops must be the innermost ones."""
    loops = [find(nest, name) for name in names]
    depth = len(nest.loops) - len(loops)
    if len(loops) < 3 or len(set(names)) != len(names) or {*nest.names[depth:]} != {*names}:
        raise NestError("the microkernel takes the innermost loops", expected="rows, columns, and one sum or more",
                        got=f"{', '.join(names)}, where {', '.join(nest.names[depth:])} are the innermost",
                        todo="reorder first")  # fmt: skip
    for loop in loops:
        if loop.kind != "serial":
            raise NestError("the microkernel unrolls and vectorises by itself", where=f"loop {loop.name}",
                            got=loop.kind, todo="leave its loops serial")  # fmt: skip
    for pack in nest.packs:
        if pack.depth > depth:
            raise NestError(f"{pack.array} would be packed inside the microkernel", todo="pack it further out")
    return depth


def _roles(nest: Nest, rows: str, columns: str, sums: Sequence[str]) -> tuple[Access, Access]:
    """Return the input with the rows and the input with the columns."""
    needed = {"output": {rows, columns}, "a": {rows, *sums}, "b": {columns, *sums}}
    inside = needed["a"] | needed["b"]
    used = {access.array: set(access.loops & inside) for access in nest.accesses}
    a = [access for access in nest.inputs if used[access.array] == needed["a"]]
    b = [access for access in nest.inputs if used[access.array] == needed["b"]]
    if used[nest.output.array] != needed["output"] or len(nest.inputs) != 2 or not a or not b:
        got = "; ".join(f"{name} by {', '.join(sorted(loops)) or 'none'}" for name, loops in used.items())
        raise NestError(
            "this is no product of matrices inside",
            expected="the output indexed by rows and columns, an input by rows and sums, an input by columns and sums",
            got=got,
            todo="exchange rows and columns, or split so that each of the loops indexes two arrays only",
        )
    return a[0], b[0]


def _check_trips(nest: Nest, bound: Bound) -> None:
    """Check that no tile is cut off; only the outermost sum may be shorter, as what was packed for it still fits."""
    outside = list(nest.names[: bound.depth])
    for name in (bound.rows, bound.columns):
        _check_whole(nest, name, outside)
    for before, name in zip(bound.sums, bound.sums[1:], strict=False):
        outside.append(before)
        _check_whole(nest, name, outside)


def _check_whole(nest: Nest, name: str, outside: Sequence[str]) -> None:
    found = trips(nest, name, outside)
    if found.rests or found.most < nest.extents[name]:
        raise NestError("the microkernel's tile would be cut off", where=f"loop {name}", got=f"range({found.text({})})",
                        todo="split by a factor that divides, tail='perfect'")  # fmt: skip


def _check_tile(nest: Nest, bound: Bound) -> None:
    from mlhood.kernels.target import host

    rows, columns, lanes = nest.extents[bound.rows], nest.extents[bound.columns], host().lanes
    if columns % lanes:
        raise NestError("the columns do not fill vectors", where=f"loop {bound.columns}", got=columns,
                        expected=f"a multiple of {lanes}, this machine's lanes")  # fmt: skip
    if rows * columns // lanes > MOST_REGISTERS:
        raise NestError("the tile is too large for registers", expected=f"at most {MOST_REGISTERS} vectors",
                        got=f"{rows} x {columns // lanes}", todo="split rows or columns by less")  # fmt: skip


def _check_layout(nest: Nest, bound: Bound, a: Access, b: Access) -> None:
    """Check the distances in memory: columns are neighbours, and b's next round follows its last column."""
    output, columns = nest.output.offset, bound.columns
    _check_distance(nest.output, columns, output.of(columns), 1, "reorder rows and columns, or their roles")
    distance = 1
    for name in (columns, *reversed(bound.sums)):
        todo = f"pack {bound.b} with its last axes in the order {', '.join([*bound.sums, columns])}"
        _check_distance(b, name, b.offset.of(name), distance, todo)
        distance *= nest.extents[name]
    if a.offset.of(bound.rows) < 1:
        _check_distance(a, bound.rows, a.offset.of(bound.rows), 1, f"pack {bound.a}")


def _check_distance(access: Access, loop: str, got: int, expected: int, todo: str) -> None:
    if got != expected:
        raise NestError(f"{access.array} does not lie as the microkernel reads it", where=f"loop {loop}, {access}",
                        expected=f"{expected} elements from one round to the next", got=got, todo=todo)  # fmt: skip


def distances(nest: Nest, bound: Bound) -> list[int]:
    """Return where the numbers of a for each round of the sums are, counted from the first one's."""
    a = nest.read(nest.input(bound.a)).offset
    found = [0]
    for name in bound.sums:
        found = [before + a.of(name) * value for before in found for value in range(nest.extents[name])]
    return found
