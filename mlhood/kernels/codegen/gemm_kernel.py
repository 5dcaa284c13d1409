"""The vectorised matrix product as native code: the microkernel inside the loops of Goto and BLIS.

    for a stretch of columns of b, for a stretch of k:        (one round)
        pack that part of b into panels                        a task a panel
        for a stretch of rows of a:                            a task each, once b is packed
            pack that part of a into panels
            for each panel of b, for each panel of a: microkernel

Tasks are numbered through; one waits for those that it builds on, so one call does everything with any number of
threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Plan, kernel
from mlhood.kernels.codegen.ir_builder import BYTE, FLOAT, Code, Int, Pointer
from mlhood.kernels.codegen.microkernel import Shape, Tile, microkernel
from mlhood.kernels.codegen.packing import byte_packer, packer
from mlhood.kernels.codegen.target import Target

FIELDS = (
    "tasks", "rounds_k", "pack_tasks", "row_tasks",
    "m", "n", "k", "mc", "nc", "kc",
    "a", "a_row", "a_k", "a_ld", "b", "b_column", "b_k", "b_ld", "c", "ldc",
    "packed_a", "packed_b",
)  # fmt: skip


@dataclass(frozen=True)
class _Parts:
    """The functions that the loops call."""

    multiply: Code
    pack_a: Code
    pack_b: Code


def build(target: Target, rows: int, vectors: int, a_across: bool, b_across: bool, of_bytes: bool = False) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of a tile.
        vectors: Registers of columns of a tile.
        a_across: Whether a row of a lies in one piece (else a column).
        b_across: Whether a column of b lies in one piece (else a row).
        of_bytes: Whether an element of a is four u8 of a row, b is s8, and c is s32.
    """
    module = ir.Module()
    tile = Tile(rows, vectors, target.lanes)
    shape = Shape(tile, bytes=of_bytes)
    pack_a = packer(module, "pack_a", tile.rows, a_across, target)
    if of_bytes:
        pack_b = byte_packer(module, "pack_b", tile.columns, target)
    else:
        pack_b = packer(module, "pack_b", tile.columns, b_across, target)
    parts = _Parts(microkernel(module, "multiply", shape, target), pack_a, pack_b)
    code = kernel(module)
    _Driver(code, Plan(code, FIELDS), shape, parts).write()
    return str(module)


class _Driver:
    """The loops around the microkernel."""

    def __init__(self, code: Code, plan: Plan, shape: Shape, parts: _Parts) -> None:
        self.code, self.plan, self.tile, self.parts = code, plan, shape.tile, parts
        self.of_bytes, self.element = shape.bytes, shape.element
        self.field = {name: plan.integer(name) for name in FIELDS}
        with code.builder.goto_entry_block():
            slot = code.builder.alloca(self.element, size=self.tile.rows * self.tile.columns)
        self.edge = Pointer(code.builder, slot, self.element)
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))

    def write(self) -> None:
        """Write the function."""
        f, b = self.field, self.code.builder
        packed_a = self.plan.pointer("packed_a").at(self.plan.thread() * f["mc"] * f["kc"])
        per_round = f["pack_tasks"] + f["row_tasks"]
        with self.plan.tasks(f["tasks"]) as task:
            number, part = task // per_round, task % per_round
            j, k = number // f["rounds_k"] * f["nc"], number % f["rounds_k"] * f["kc"]
            packing = part < f["pack_tasks"]
            before = number * per_round
            self.plan.wait_for(before.where(packing, before + f["pack_tasks"]))
            depth = (f["k"] - k).least(f["kc"])
            with b.if_else(packing) as (pack, multiply):
                with pack:
                    self._pack_b(part, j, k, depth)
                with multiply:
                    self._rows((part - f["pack_tasks"]) * f["mc"], j, k, depth, packed_a)
        self.code.done()

    def _pack_b(self, panel: Int, j: Int, k: Int, depth: Int) -> None:
        f, width = self.field, self.tile.columns
        column = j + panel * width
        with self.code.when(column < f["n"]):
            source = self.plan.pointer("b", BYTE if self.of_bytes else FLOAT).at(k * f["b_k"] + column * f["b_column"])
            out = self.plan.pointer("packed_b").at(panel * f["kc"] * width)
            self.code.call(self.parts.pack_b, source, f["b_ld"], (f["n"] - column).least(width), depth, out)

    def _rows(self, i: Int, j: Int, k: Int, depth: Int, packed_a: Pointer) -> None:
        """Multiply a stretch of rows of a with all panels of b that are packed."""
        f, width = self.field, self.tile.rows
        i_end, j_end = (i + f["mc"]).least(f["m"]), (j + f["nc"]).least(f["n"])
        with self.code.loop(i, i_end, width) as row:
            source = self.plan.pointer("a").at(row * f["a_row"] + k * f["a_k"])
            out = packed_a.at((row - i) * depth)
            self.code.call(self.parts.pack_a, source, f["a_ld"], (i_end - row).least(width), depth, out)
        with self.code.loop(j, j_end, self.tile.columns) as column:
            panel = self.plan.pointer("packed_b").at((column - j) * f["kc"])
            with self.code.loop(i, i_end, width) as row:
                self._tile(row, column, packed_a.at((row - i) * depth), panel, depth, k.equals(0))

    def _tile(self, row: Int, column: Int, a: Pointer, panel: Pointer, depth: Int, first: Any) -> None:
        f, b, tile = self.field, self.code.builder, self.tile
        out = self.plan.pointer("c", self.element).at(row * f["ldc"] + column)
        rows, columns = (f["m"] - row).least(tile.rows), (f["n"] - column).least(tile.columns)
        whole = b.and_(rows.equals(tile.rows), columns.equals(tile.columns))
        with b.if_else(whole) as (inside, at_edge):
            with inside:
                partial = Pointer(b, b.select(first, self.null.value, out.value))
                self._multiply(a, panel, depth, partial, f["ldc"], out, f["ldc"])
            with at_edge:
                width = self.code.constant(tile.columns)
                self._multiply(a, panel, depth, self.null, width, self.edge, width)
                self._add(out, rows, columns, first)

    def _multiply(self, a: Pointer, b: Pointer, depth: Int, partial: Pointer, pld: Int, out: Pointer, ld: Int) -> None:
        limits = [ir.Constant(FLOAT, float("-inf")), ir.Constant(FLOAT, float("inf"))]
        self.code.call(
            self.parts.multiply, a, b, self.null, depth, partial, pld, out, ld, self.null, self.null, *limits
        )

    def _add(self, out: Pointer, rows: Int, columns: Int, first: Any) -> None:
        """Add the part of a tile that lies inside the result."""
        builder = self.code.builder
        with self.code.loop(0, rows) as m, self.code.loop(0, columns) as n:
            place, value = out.at(m * self.field["ldc"] + n), self.edge.at(m * self.tile.columns + n).load()
            with builder.if_else(first) as (new, more):
                with new:
                    place.store(value)
                with more:
                    add = builder.add if self.of_bytes else builder.fadd
                    place.store(add(place.load(), value))
