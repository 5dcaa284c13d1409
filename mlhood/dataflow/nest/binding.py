"""Binding: replaces the innermost loops by a call of the generated microkernel (TVM calls this step tensorisation).

For each step of the reduction the microkernel (`mlhood.kernels.codegen.microkernel`) broadcasts one element per row of
`a`, at offsets from a table, and loads consecutive vectors of columns of `b`: tile[m, n] += a[k, m] * b[k, n].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlhood.dataflow.nest.loop_nest import Access, AnyNest, Binding, LoopNest
from mlhood.dataflow.nest.space import TripCount, trip_count
from mlhood.errors import NestError

MAX_REGISTERS = 64  # vectors of a tile: larger ones only spill to memory


def bind(nest: AnyNest, rows: str, columns: str, *reductions: str) -> AnyNest:
    """Run the innermost loops by the generated microkernel of `mlhood.kernels`, whose tile stays in registers.

    It computes tile[m, n] += a[k, m] * b[k, n]. All tiles must be full; columns are contiguous in the output, and b is
    packed with the columns innermost. The loops may be in any order.

    Args:
        nest: The nest.
        rows: The loop over the tile's rows.
        columns: The loop over its columns: a multiple of the machine's lanes.
        reductions: The other innermost loops, which are summed over.

    Raises:
        NestError: If the loops or arrays do not fit; the message says what is missing.
    """
    if bound := nest.binding:
        raise NestError("a microkernel is already bound", got=f"rows {bound.rows}, columns {bound.columns}")
    depth = _depth(nest, [rows, columns, *reductions])
    ordered = tuple(name for name in nest.names[depth:] if name in reductions)
    a, b = _operands(nest, rows, columns, ordered)
    binding = Binding(depth, ordered, rows, columns, a.array, b.array)
    _check_full_tiles(nest, binding)
    _check_tile_size(nest, binding)
    _check_layout(nest, binding, nest.operand(a), nest.operand(b))
    inner = [replace(nest.loop(name), kind="bound") for name in (*ordered, rows, columns)]
    return replace(nest, loops=(*nest.loops[:depth], *inner), binding=binding)


def _depth(nest: LoopNest, names: Sequence[str]) -> int:
    """Return the number of loops outside the microkernel, whose loops must be the innermost ones."""
    loops = [nest.loop(name) for name in names]
    depth = len(nest.loops) - len(loops)
    if len(loops) < 3 or len(set(names)) != len(names) or {*nest.names[depth:]} != {*names}:
        raise NestError(
            "the microkernel replaces the innermost loops",
            expected="rows, columns, and at least one reduction loop",
            got=f"{', '.join(names)}, where {', '.join(nest.names[depth:])} are the innermost",
            todo="reorder first",
        )
    for loop in loops:
        if loop.kind != "serial":
            what = "the microkernel unrolls and vectorises by itself"
            raise NestError(what, where=f"loop {loop.name}", got=loop.kind, todo="leave its loops serial")
    for pack in nest.packs:
        if pack.depth > depth:
            raise NestError(f"{pack.array} would be packed inside the microkernel", todo="pack it further out")
    return depth


def _operands(nest: LoopNest, rows: str, columns: str, reductions: Sequence[str]) -> tuple[Access, Access]:
    """Return the input indexed by the rows and the input indexed by the columns."""
    required = {"output": {rows, columns}, "a": {rows, *reductions}, "b": {columns, *reductions}}
    inner = required["a"] | required["b"]
    indexed = {access.array: set(access.loops & inner) for access in nest.accesses}
    a = [access for access in nest.inputs if indexed[access.array] == required["a"]]
    b = [access for access in nest.inputs if indexed[access.array] == required["b"]]
    if indexed[nest.output.array] != required["output"] or len(nest.inputs) != 2 or not a or not b:
        got = "; ".join(f"{name} by {', '.join(sorted(loops)) or 'none'}" for name, loops in indexed.items())
        raise NestError(
            "the innermost loops are not a matrix product",
            expected="the output indexed by rows and columns, an input by rows and sums, an input by columns and sums",
            got=got,
            todo="exchange rows and columns, or split so that each of the loops indexes two arrays only",
        )
    return a[0], b[0]


def _check_full_tiles(nest: LoopNest, binding: Binding) -> None:
    """Check that trip counts are constant; only the outermost reduction may vary: what was packed for it still fits."""
    outside = nest.names[: binding.depth]
    outer = {binding.rows: outside, binding.columns: outside}
    outer |= {name: (*outside, *binding.reductions[:i]) for i, name in enumerate(binding.reductions) if i}
    for name, loops in outer.items():
        trips = trip_count(nest, name, loops)
        if trips != TripCount(nest.extents[name]):
            what, todo = "the microkernel needs full tiles", "split by a factor that divides, tail='perfect'"
            raise NestError(what, where=f"loop {name}", got=f"range({trips.code({})})", todo=todo)


def _check_tile_size(nest: LoopNest, binding: Binding) -> None:
    from mlhood.kernels.codegen.target import host

    rows, columns, lanes = nest.extents[binding.rows], nest.extents[binding.columns], host().lanes
    if columns % lanes:
        expected = f"a multiple of {lanes}, this machine's lanes"
        what = "the columns do not fill whole vectors"
        raise NestError(what, where=f"loop {binding.columns}", expected=expected, got=columns)
    if rows * columns // lanes > MAX_REGISTERS:
        raise NestError(
            "the tile is too large for registers",
            expected=f"at most {MAX_REGISTERS} vectors",
            got=f"{rows} x {columns // lanes}",
            todo="split rows or columns by less",
        )


def _check_layout(nest: LoopNest, binding: Binding, a: Access, b: Access) -> None:
    """Check strides: columns are contiguous, and b's next reduction step follows its last column."""
    _check_stride(nest.output, binding.columns, 1, "reorder rows and columns, or exchange their roles")
    stride = 1
    for name in (binding.columns, *reversed(binding.reductions)):
        axes = ", ".join([*binding.reductions, binding.columns])
        _check_stride(b, name, stride, f"pack {binding.b} with its last axes in the order {axes}")
        stride *= nest.extents[name]
    if a.offset.coefficient(binding.rows) < 1:
        _check_stride(a, binding.rows, 1, f"pack {binding.a}")


def _check_stride(access: Access, loop: str, expected: int, todo: str) -> None:
    stride = access.offset.coefficient(loop)
    if stride != expected:
        raise NestError(
            f"the layout of {access.array} does not suit the microkernel",
            where=f"loop {loop}, {access}",
            expected=f"a stride of {expected} elements",
            got=stride,
            todo=todo,
        )


def a_offsets(nest: LoopNest, binding: Binding) -> list[int]:
    """Return the offset of a's element in each step of the reduction, from that of the first step."""
    a = nest.operand(nest.input(binding.a)).offset
    offsets = [0]
    for name in binding.reductions:
        stride = a.coefficient(name)
        offsets = [offset + stride * value for offset in offsets for value in range(nest.extents[name])]
    return offsets
