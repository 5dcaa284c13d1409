"""The microkernel: a register tile of the result, accumulated over all of k.

A tile is `rows` x `vectors` registers of `lanes` float32. Each step of k loads `vectors` registers of b and broadcasts
one element of a per row:

    tile[m, n] += a[m, k] * b[k, n]        m < rows, n < vectors * lanes

so `rows * vectors` multiply-adds need only `rows + vectors` loads. The generator emits LLVM IR for any tile; `cheapest`
chooses the tile for a processor and a shape. (Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication,
2008; Van Zee and van de Geijn, BLIS, 2015.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import (
    ADDRESS,
    FLOAT,
    INDEX,
    INT32,
    FunctionBuilder,
    Int,
    Pointer,
    StackSlot,
    transpose,
)
from mlhood.kernels.codegen.remainder import load_lanes, store_lanes
from mlhood.kernels.codegen.steps import Step, evaluate
from mlhood.kernels.codegen.target import Target

CACHE_LINE = 16  # float32 in a cache line
Addressing = Literal["packed", "table"]


@dataclass(frozen=True)
class Tile:
    """A register tile: `rows` x (`vectors` * `lanes`) float32."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.vectors * self.lanes

    @property
    def registers(self) -> int:
        """Registers it occupies: the tile, the vectors of b, and one for the broadcast element of a."""
        return self.rows * self.vectors + self.vectors + 1

    @property
    def cycles(self) -> float:
        """Estimated cycles per k: two multiply-adds and 1.3 loads a cycle, multiply-adds with a latency of four."""
        return max(self.rows * self.vectors / 2, (self.rows + self.vectors) / 1.3, 4) + 0.5


@functools.cache
def candidates(target: Target) -> tuple[Tile, ...]:
    """Return the tiles that fit into a processor's registers."""
    tiles = [Tile(rows, vectors, target.lanes) for vectors in range(1, 5) for rows in range(1, 17)]
    return tuple(tile for tile in tiles if tile.registers <= target.registers)


def cheapest(target: Target, rows: int, columns: int) -> Tile:
    """Return the tile that covers a result in the fewest cycles; among near ties, the one with the most columns.

    Args:
        target: The processor.
        rows: Rows of the result; the last tile may be partial.
        columns: Columns of the result.
    """
    costs = {
        tile: -(-rows // tile.rows) * -(-columns // tile.columns) * tile.cycles
        for tile in candidates(target)
        if tile.rows <= rows
    }
    least = min(costs.values())
    near_ties = [tile for tile, cost in costs.items() if cost <= 1.03 * least]
    return max(near_ties, key=lambda tile: (tile.vectors, -costs[tile]))


@dataclass(frozen=True)
class MicrokernelSpec:
    """What a microkernel reads and writes.

    Args:
        tile: The register tile.
        a_stride: Elements between the rows of a at one k: 1 if packed, the stride of a convolution; None for the
            last parameter, `a_ld`, with the k of a row one after another.
        a: Addressing of a's next k: `packed` (`rows` elements on) or by a `table` of offsets.
        b: Likewise for b (`columns` elements on).
        store: `rows`: row m of the tile goes to out + m * ld; `columns`: column n goes to out + n * ld; `blocks`:
            vector v of row m goes to out + v * ld + m * lanes.
        bias_axis: The axis of the tile that the bias is indexed by: none, `rows` or `columns`.
        b_stride: Elements between adjacent lanes of b.
        valid_columns: With `store="rows"` or `columns`, the number of columns to write; None for all.
        fill_lanes: With `store="columns"`, whether a column of fewer rows than lanes is filled up with zeros.
        unroll: Number of k per iteration. With a table, adjacent k of that many are adjacent elements of a, and the
            table has one entry for all of them; the number of k is a multiple. Otherwise it may be any number.
        a_prefetch: Distance in k at which a is prefetched, one row per k; the table is longer by as much. 0: none.
        b_prefetch: Likewise for b, which is packed: all of a k at once.
        ahead: Cache lines per iteration that are prefetched into the second-level cache, from the parameter `ahead` on:
            what a later call reads. 0: none, and no parameter.
        epilogue: Steps that are applied to the result.
    """

    tile: Tile
    a_stride: int | None = 1
    a: Addressing = "packed"
    b: Addressing = "packed"
    store: Literal["rows", "columns", "blocks"] = "rows"
    bias_axis: Literal["none", "rows", "columns"] = "none"
    b_stride: int = 1
    valid_columns: int | None = None
    fill_lanes: bool = False
    unroll: int = 1
    a_prefetch: int = 0
    b_prefetch: int = 0
    ahead: int = 0
    epilogue: tuple[Step, ...] = ()


PARAMETERS = {
    "a": ADDRESS,
    "b": ADDRESS,
    "table": ADDRESS,
    "count": INDEX,  # number of k
    "partial": ADDRESS,  # initial values of the tile, by rows; null: zeros
    "partial_ld": INDEX,
    "out": ADDRESS,
    "ld": INDEX,
    "bias": ADDRESS,  # ignored without an axis
    "residual": ADDRESS,  # laid out like `out`; null: none
}


def microkernel(module: ir.Module, name: str, spec: MicrokernelSpec, target: Target) -> FunctionBuilder:
    """Add a microkernel with `PARAMETERS`, `a_ld` where the stride is not fixed, and `ahead`, to a module."""
    a_ld: dict[str, Any] = {"a_ld": INDEX} if spec.a_stride is None else {}
    ahead: dict[str, Any] = {"ahead": ADDRESS} if spec.ahead else {}
    code = FunctionBuilder(module, name, PARAMETERS | a_ld | ahead, public=False)
    tile = spec.tile
    kind = ir.VectorType(FLOAT, tile.lanes)
    zero = ir.Constant(kind, None)
    sums = [[code.variable(kind, zero) for _ in range(tile.vectors)] for _ in range(tile.rows)]
    _load_partial(code, spec, sums)
    _accumulate(code, spec, sums, target)
    _epilogue(code, spec, sums, target)
    code.ret()
    return code


def _load_partial(code: FunctionBuilder, spec: MicrokernelSpec, sums: list[list[StackSlot]]) -> None:
    tile, partial, ld = spec.tile, code.pointer("partial"), code.integer("partial_ld")
    with code.builder.if_then(code.builder.not_(partial.is_null())):
        for m, row in enumerate(sums):
            for v, total in enumerate(row):
                total.set(partial.at(ld * m).at(v * tile.lanes).load(tile.lanes))


def _accumulate(code: FunctionBuilder, spec: MicrokernelSpec, sums: list[list[StackSlot]], target: Target) -> None:
    count = code.integer("count")
    whole = count - count % spec.unroll if spec.unroll > 1 else count
    with code.loop(0, whole, spec.unroll) as k:
        _step(code, spec, sums, k, range(spec.unroll), target)
    if spec.unroll > 1 and spec.a != "table":
        with code.loop(whole, count) as k:
            _step(code, spec, sums, k, range(1), target)


def _step(
    code: FunctionBuilder, spec: MicrokernelSpec, sums: list[list[StackSlot]], k: Int, unrolled: range, target: Target
) -> None:
    """Accumulate k and the unrolled ones after it."""
    tile, table = spec.tile, code.pointer("table", INDEX)
    entry = table.at(k // spec.unroll if spec.unroll > 1 else k)
    first = k if spec.a_stride is None else k * tile.rows
    a = code.pointer("a").at(entry.load_int() if spec.a == "table" else first)
    b = code.pointer("b").at(entry.load_int() if spec.b == "table" else k * tile.columns)
    row_stride = code.integer("a_ld") if spec.a_stride is None else code.constant(spec.a_stride)
    rows = [a.at(row_stride * m) for m in range(tile.rows)]
    _prefetch(code, spec, k, entry, len(unrolled))
    for step in unrolled:
        start = b.at(step * tile.columns)
        vectors = [_strided_load(code, start, v * tile.lanes, tile.lanes, spec.b_stride) for v in range(tile.vectors)]
        is_packed = spec.a == "packed" and spec.a_stride is not None
        for m, row in enumerate(sums):
            broadcast = code.splat(rows[m].at(step * (tile.rows if is_packed else 1)).load(), tile.lanes)
            for total, vector in zip(row, vectors, strict=True):
                total.set(code.in_order(code.fma(broadcast, vector, total.get()), target.constraint))


def _prefetch(code: FunctionBuilder, spec: MicrokernelSpec, k: Int, entry: Pointer, steps: int) -> None:
    """Prefetch what a later k reads; hardware prefetchers recognize only consecutive addresses."""
    tile = spec.tile
    if spec.a_prefetch and spec.unroll > 1:
        later = code.pointer("a").at(entry.at(spec.a_prefetch // spec.unroll).load_int())
        for m in range(tile.rows):  # each row's adjacent elements share a cache line
            code.prefetch(later.at(m * (spec.a_stride or 0)))
    elif spec.a_prefetch:
        offset = entry.at(spec.a_prefetch).load_int()
        code.prefetch(code.pointer("a").at(offset + k % tile.lanes * (spec.a_stride or 0)))
    if spec.b_prefetch:
        for v in range(tile.vectors * steps):
            code.prefetch(code.pointer("b").at((k + spec.b_prefetch) * tile.columns + v * tile.lanes))
    for line in range(spec.ahead if steps == spec.unroll else 0):
        offset = (k // spec.unroll * spec.ahead + line) * CACHE_LINE
        code.prefetch(code.pointer("ahead").at(offset), level=2)


def _strided_load(code: FunctionBuilder, b: Pointer, first: int, lanes: int, stride: int) -> Any:
    """Load every `stride`-th element from `first` on; elements up to the next one in the sequence may be read too."""
    start = b.at(first * stride)
    if stride == 1:
        return start.load(lanes)
    if stride == 2:
        return code.shuffle(start.load(lanes), start.at(lanes).load(lanes), range(0, 2 * lanes, 2))
    vector = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    for lane in range(lanes):
        vector = code.builder.insert_element(vector, start.at(lane * stride).load(), INT32(lane))
    return vector


def _epilogue(code: FunctionBuilder, spec: MicrokernelSpec, sums: list[list[StackSlot]], target: Target) -> None:
    """Add bias and residual, apply the steps, and store the tile."""
    tile = spec.tile
    if spec.bias_axis != "none":
        _add_bias(code, spec, sums)
    ld = code.integer("ld")
    if spec.store != "columns":
        row_step, vector_step = (ld, tile.lanes) if spec.store == "rows" else (code.constant(tile.lanes), ld)
        for v in range(tile.vectors):
            pieces = [(row_step * m + code.constant(v) * vector_step, row[v].get()) for m, row in enumerate(sums)]
            _store(code, spec, pieces, _valid_lanes(spec, v), target)
        return
    zero = ir.Constant(ir.VectorType(FLOAT, tile.lanes), None)
    for v in range(tile.vectors):
        for first in range(0, tile.rows, tile.lanes):
            rows = [row[v].get() for row in sums[first : first + tile.lanes]]
            filled = [*rows, *[zero] * (tile.lanes - len(rows))] if spec.fill_lanes else rows
            columns = transpose(code, filled, tile.lanes)[: _valid_lanes(spec, v)]
            pieces = [(ld * (v * tile.lanes + n) + first, column) for n, column in enumerate(columns)]
            _store(code, spec, pieces, len(filled), target)


def _valid_lanes(spec: MicrokernelSpec, vector: int) -> int:
    """Return how many lanes of a vector of each row are written."""
    lanes = spec.tile.lanes
    return lanes if spec.valid_columns is None else min(lanes, spec.valid_columns - vector * lanes)


def _add_bias(code: FunctionBuilder, spec: MicrokernelSpec, sums: list[list[StackSlot]]) -> None:
    tile, bias = spec.tile, code.pointer("bias")
    for m, row in enumerate(sums):
        for v, total in enumerate(row):
            if spec.bias_axis == "columns":
                vector = bias.at(v * tile.lanes).load(tile.lanes)
            else:
                vector = code.splat(bias.at(m).load(), tile.lanes)
            total.set(code.builder.fadd(total.get(), vector))


def _store(code: FunctionBuilder, spec: MicrokernelSpec, pieces: list[Any], count: int, target: Target) -> None:
    """Store `count` lanes of each (offset, vector), with the residual added, after the steps."""
    kind, out, residual = pieces[0][1].type, code.pointer("out"), code.pointer("residual")
    values = [code.variable(kind, vector) for _, vector in pieces]
    with code.builder.if_then(code.builder.not_(residual.is_null())):
        for (offset, _), value in zip(pieces, values, strict=True):
            value.set(code.builder.fadd(value.get(), load_lanes(code, residual.at(offset), kind.count, count)))
    for (offset, _), value in zip(pieces, values, strict=True):
        store_lanes(code, out.at(offset), evaluate(code, spec.epilogue, [value.get()], kind.count), count, target)
