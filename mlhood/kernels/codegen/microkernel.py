"""The microkernel: a tile of the result that stays in registers while a dot product runs through all of k.

A tile is `rows` x `vectors` registers of `lanes` float32. Each step of k loads `vectors` registers of b, and for each
row one number of a, which multiplies them all:

    tile[m, n] += a[m, k] * b[k, n]        m < rows, n < vectors * lanes

so that of `rows * vectors` multiply-adds only `rows + vectors` read memory. It writes LLVM IR for any tile; `cheapest`
says which tile suits a processor and a shape. (Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication, 2008; Van Zee and van de Geijn, BLIS, 2015.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.dot import dot
from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, INT32, Code, Int, Pointer, Variable
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.codegen.transpose import transpose

Where = Literal["packed", "table"]


@dataclass(frozen=True)
class Tile:
    """A register tile: `rows` x (`vectors` * `lanes`) float32."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        """How many columns it has."""
        return self.vectors * self.lanes

    @property
    def registers(self) -> int:
        """Registers that it takes: the tile itself, b's vectors, and one for a number of a."""
        return self.rows * self.vectors + self.vectors + 1

    @property
    def cycles(self) -> float:
        """Roughly the cycles of one k: two multiply-adds and two loads a cycle, each sum at most every fourth one."""
        return max(self.rows * self.vectors / 2, (self.rows + self.vectors) / 2, 4) + 1


@functools.cache
def candidates(target: Target) -> tuple[Tile, ...]:
    """Return the tiles that the registers of a processor hold."""
    tiles = [Tile(rows, vectors, target.lanes) for vectors in range(1, 5) for rows in range(1, 17)]
    return tuple(tile for tile in tiles if tile.registers <= target.registers)


def cheapest(target: Target, rows: int, columns: int) -> Tile:
    """Return the tile that covers a result in the fewest cycles; of almost equal ones, that with the most columns.

    Args:
        target: The processor.
        rows: Rows of the result, the remainder of which a tile may not fill.
        columns: Columns of the result, likewise.
    """
    costs = {
        tile: -(-rows // tile.rows) * -(-columns // tile.columns) * tile.cycles
        for tile in candidates(target)
        if tile.rows <= rows
    }
    least = min(costs.values())
    good = [tile for tile, cost in costs.items() if cost <= 1.03 * least]
    return max(good, key=lambda tile: (tile.vectors, -costs[tile]))


@dataclass(frozen=True)
class Shape:
    """What a microkernel reads and writes.

    Args:
        tile: The registers.
        spread: Elements between the numbers of a that meet one k: 1 when packed, the stride of a convolution.
        b_spread: Likewise between neighbouring lanes of b.
        valid: How many columns of a row are written, with `store="rows"`; all if None.
        a: Where the numbers for the next k are: `packed` (rows elements on) or in a `table` of distances.
        b: Likewise (columns elements on).
        store: `rows`: the tile's row m goes to out + m * ld; `columns`: its column n goes to out + n * ld; `blocks`:
            vector v of row m goes to out + v * ld + m * lanes.
        a_ahead: How many k ahead a's numbers are fetched into the cache, one row each k; the table reaches as much
            further. 0: not at all.
        b_ahead: Likewise b's, which are packed, all of a k at once.
        bytes: Whether an element is four bytes, a's unsigned and b's signed, and a sum a 32-bit integer.
        per: Which of the tile's directions a bias belongs to: none, `rows` or `columns`.
    """

    tile: Tile
    spread: int = 1
    a: Where = "packed"
    b: Where = "packed"
    store: Literal["rows", "columns", "blocks"] = "rows"
    per: Literal["none", "rows", "columns"] = "none"
    b_spread: int = 1
    valid: int | None = None
    a_ahead: int = 0
    b_ahead: int = 0
    bytes: bool = False

    @property
    def element(self) -> Any:
        """What a sum is."""
        return INT32 if self.bytes else FLOAT


PARAMETERS = {
    "a": ADDRESS, "b": ADDRESS, "table": ADDRESS, "count": INDEX,  # count: how many k
    "partial": ADDRESS, "partial_ld": INDEX,  # a tile to start from, by rows; null: zeros
    "out": ADDRESS, "ld": INDEX,
    "bias": ADDRESS, "residual": ADDRESS,  # null: none; the residual lies as `out` does
    "floor": FLOAT, "ceiling": FLOAT,
}  # fmt: skip


def microkernel(module: ir.Module, name: str, shape: Shape, target: Target) -> Code:
    """Write a microkernel into a module; its parameters are `PARAMETERS`."""
    code = Code(module, name, PARAMETERS, public=False)
    tile = shape.tile
    kind = ir.VectorType(shape.element, tile.lanes)
    sums = [[code.variable(kind, ir.Constant(kind, None)) for _ in range(tile.vectors)]
            for _ in range(tile.rows)]  # fmt: skip
    _start(code, shape, sums)
    _accumulate(code, shape, sums, target)
    if shape.bytes:
        _store(code, tile, sums)
    else:
        _finish(code, shape, sums, target)
    code.done()
    return code


def _start(code: Code, shape: Shape, sums: list[list[Variable]]) -> None:
    tile, partial, ld = shape.tile, code.pointer("partial", shape.element), code.integer("partial_ld")
    with code.when(code.builder.not_(partial.is_null())):
        for m, row in enumerate(sums):
            for v, total in enumerate(row):
                total.set(partial.at(ld * m).at(v * tile.lanes).load(tile.lanes))


def _store(code: Code, tile: Tile, sums: list[list[Variable]]) -> None:
    """Write the sums as they are."""
    for m, row in enumerate(sums):
        for v, total in enumerate(row):
            code.pointer("out", INT32).at(code.integer("ld") * m + v * tile.lanes).store(total.get())


def _accumulate(code: Code, shape: Shape, sums: list[list[Variable]], target: Target) -> None:
    tile = shape.tile
    table = code.pointer("table", INDEX)
    with code.loop(0, code.integer("count")) as k:
        a = code.pointer("a", shape.element).at(table.at(k).integer() if shape.a == "table" else k * tile.rows)
        b = code.pointer("b", shape.element).at(table.at(k).integer() if shape.b == "table" else k * tile.columns)
        _fetch_ahead(code, shape, k, table)
        vectors = [_spread_load(code, b, v * tile.lanes, tile.lanes, shape.b_spread) for v in range(tile.vectors)]
        for m, row in enumerate(sums):
            number = code.splat(a.at(m * shape.spread).load(), tile.lanes)
            for total, vector in zip(row, vectors, strict=True):
                more = dot(code, number, vector, total.get(), target) if shape.bytes else None
                total.set(code.fma(number, vector, total.get()) if more is None else more)


def _fetch_ahead(code: Code, shape: Shape, k: Int, table: Pointer) -> None:
    """Ask for what is read some k later, where memory is far: a processor sees coming only what is a neighbour."""
    tile = shape.tile
    if shape.a_ahead:
        later = table.at(k + shape.a_ahead).integer()
        code.fetch(code.pointer("a").at(later + k % tile.lanes * shape.spread))
    if shape.b_ahead:
        for v in range(tile.vectors):
            code.fetch(code.pointer("b").at((k + shape.b_ahead) * tile.columns + v * tile.lanes))


def _spread_load(code: Code, b: Pointer, first: int, lanes: int, spread: int) -> Any:
    """Return every `spread`-th number from `first` on; numbers between the last one and the next are read too."""
    start = b.at(first * spread)
    if spread == 1:
        return start.load(lanes)
    if spread == 2:
        return code.shuffle(start.load(lanes), start.at(lanes).load(lanes), range(0, 2 * lanes, 2))
    vector = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    for lane in range(lanes):
        number = start.at(lane * spread).load()
        vector = code.builder.insert_element(vector, number, ir.IntType(32)(lane))
    return vector


def _finish(code: Code, shape: Shape, sums: list[list[Variable]], target: Target) -> None:
    """Add bias and residual, keep within floor and ceiling, and write the tile."""
    tile = shape.tile
    if shape.per != "none":
        _add_bias(code, shape, sums)
    out, residual, ld = code.pointer("out"), code.pointer("residual"), code.integer("ld")
    if shape.store != "columns":
        step_m, step_v = (ld, tile.lanes) if shape.store == "rows" else (code.constant(tile.lanes), ld)
        for v in range(tile.vectors):
            pieces = [(step_m * m + code.constant(v) * step_v, row[v].get()) for m, row in enumerate(sums)]
            count = tile.lanes if shape.valid is None else min(tile.lanes, shape.valid - v * tile.lanes)
            _write(code, pieces, count, out, residual, target)
        return
    for v in range(tile.vectors):
        for first in range(0, tile.rows, tile.lanes):
            rows = [row[v].get() for row in sums[first : first + tile.lanes]]
            columns = transpose(code, rows, tile.lanes)
            pieces = [(ld * (v * tile.lanes + n) + first, column) for n, column in enumerate(columns)]
            _write(code, pieces, len(rows), out, residual, target)


def _add_bias(code: Code, shape: Shape, sums: list[list[Variable]]) -> None:
    tile, bias = shape.tile, code.pointer("bias")
    with code.when(code.builder.not_(bias.is_null())):
        for m, row in enumerate(sums):
            for v, total in enumerate(row):
                along = bias.at(v * tile.lanes).load(tile.lanes) if shape.per == "columns" else None
                amount = code.splat(bias.at(m).load(), tile.lanes) if along is None else along
                total.set(code.builder.fadd(total.get(), amount))


def _write(code: Code, pieces: list[Any], count: int, out: Pointer, residual: Pointer, target: Target) -> None:
    """Write `count` lanes of each (distance, vector), after what an epilogue asks for."""
    lanes = pieces[0][1].type.count
    floor, ceiling = (code.splat(code.parameters[name], lanes) for name in ("floor", "ceiling"))
    kind = pieces[0][1].type
    values = [code.variable(kind, vector) for _, vector in pieces]
    with code.when(code.builder.not_(residual.is_null())):
        for (distance, _), value in zip(pieces, values, strict=True):
            value.set(code.builder.fadd(value.get(), read_lanes(code, residual.at(distance), lanes, count, target)))
    for (distance, _), value in zip(pieces, values, strict=True):
        write_lanes(code, out.at(distance), code.at_most(code.at_least(value.get(), floor), ceiling), count, target)


def _chunks(count: int) -> list[tuple[int, int]]:
    """Return (first lane, lanes) of the powers of two that make up `count`."""
    found, first = [], 0
    while first < count:
        size = 1 << ((count - first).bit_length() - 1)
        found.append((first, size))
        first += size
    return found


def write_lanes(code: Code, place: Pointer, vector: Any, count: int, target: Target) -> None:
    """Store the first `count` lanes of a vector, and touch nothing beyond them."""
    lanes = vector.type.count
    if count == lanes:
        place.store(vector)
    elif target.masked:
        mask = ir.Constant(ir.VectorType(ir.IntType(1), lanes), [int(lane < count) for lane in range(lanes)])
        code.builder.call(masked(code, "store", vector.type), [vector, place.value, ir.IntType(32)(4), mask])
    else:
        for first, size in _chunks(count):
            place.at(first).store(code.shuffle(vector, vector, range(first, first + size)))


def read_lanes(code: Code, place: Pointer, lanes: int, count: int, target: Target) -> Any:
    """Load `count` lanes, and touch nothing beyond them; the others are zero."""
    if count == lanes:
        return place.load(lanes)
    kind = ir.VectorType(FLOAT, lanes)
    zeros = ir.Constant(kind, [0.0] * lanes)
    if target.masked:
        mask = ir.Constant(ir.VectorType(ir.IntType(1), lanes), [int(lane < count) for lane in range(lanes)])
        return code.builder.call(masked(code, "load", kind), [place.value, ir.IntType(32)(4), mask, zeros])
    for lane in range(count):
        zeros = code.builder.insert_element(zeros, place.at(lane).load(), ir.IntType(32)(lane))
    return zeros


def masked(code: Code, what: str, kind: Any) -> Any:
    """Return LLVM's `load` (address, alignment, mask, other lanes) or `store` (vector, address, alignment, mask)."""
    name, mask = f"llvm.masked.{what}.v{kind.count}f32.p0", ir.VectorType(ir.IntType(1), kind.count)
    known = code.module.globals.get(name)
    if known is not None:
        return known
    if what == "store":
        signature = ir.FunctionType(ir.VoidType(), [kind, ADDRESS, ir.IntType(32), mask])
    else:
        signature = ir.FunctionType(kind, [ADDRESS, ir.IntType(32), mask, kind])
    return ir.Function(code.module, signature, name)
