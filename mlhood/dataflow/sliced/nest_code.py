"""The nest of the sliced convolution as native code, around the microkernel of the direct one.

Input tiles are read where they lie, through a table of distances; weights are packed so that a slice of channels of
one weight tile is one piece. Sums of a pair of tiles wait in memory, one tile after the other, until the last slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from mlhood.dataflow.slicing.problem import Order
from mlhood.kernels.codegen.arguments import Plan, kernel
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, Code, Int, Pointer
from mlhood.kernels.codegen.microkernel import Shape, Tile, microkernel
from mlhood.kernels.codegen.target import Target

# `stay` and `pass` count tiles of the kinds that stay and pass by; a task is some of both
FIELDS = (
    "tasks", "stay_parts", "stay_part", "pass_part", "stay_count", "pass_count", "k2", "k3", "count", "slice",
    "x", "x_row", "x_tile", "x_last", "row_tiles", "last", "table", "w", "w_block",
    "out", "out_block", "out_row", "ld", "filters", "bias", "sums",
)  # fmt: skip


@dataclass(frozen=True)
class Nest:
    """One of the nests.

    Args:
        rows: Windows of the register tile.
        vectors: Registers of filters.
        spread: Elements between neighbouring windows.
        order: Which kind of tile stays.
    """

    rows: int
    vectors: int
    spread: int
    order: Order


@dataclass(frozen=True)
class _Pair:
    """What one call of the microkernel works on: the numbers of an input tile and of a weight tile."""

    input: Int
    weight: Int


def build(target: Target, nest: Nest) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    shape = Shape(Tile(nest.rows, nest.vectors, target.lanes), nest.spread, a="table")
    partial = microkernel(module, "partial", shape, target)
    final = microkernel(module, "final", replace(shape, per="columns", store="columns"), target)
    code = kernel(module)
    _Writer(code, Plan(code, FIELDS), shape.tile, partial, final, nest.order).write()
    return str(module)


class _Writer:
    """Writes the loops around the microkernel: `partial` leaves sums behind, `final` finishes a tile."""

    def __init__(self, code: Code, plan: Plan, tile: Tile, partial: Code, final: Code, order: Order) -> None:
        self.code, self.plan, self.tile, self.order = code, plan, tile, order
        self.partial, self.final = partial, final
        self.field = {name: plan.integer(name) for name in FIELDS}
        self.base = {name: plan.pointer(name) for name in ("x", "w", "out", "bias", "sums")}
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))
        with code.builder.goto_entry_block():
            self.edge = Pointer(code.builder, code.builder.alloca(FLOAT, size=tile.rows * tile.columns))

    def write(self) -> None:
        """Write the function: each task takes its part of the tiles through all slices."""
        f = self.field
        with self.plan.tasks(f["tasks"]) as task:
            first = task % f["stay_parts"] * f["stay_part"]
            second = task // f["stay_parts"] * f["pass_part"]
            stay = first, (first + f["stay_part"]).least(f["stay_count"])
            passing = second, (second + f["pass_part"]).least(f["pass_count"])
            with self._groups(self.code.constant(0), f["count"], f["slice"]) as (k, end):
                self._slice(k, end, stay, passing)
        self.code.done()

    def _slice(self, k: Int, end: Int, stay: tuple[Int, Int], passing: tuple[Int, Int]) -> None:
        """Take one slice of channels through groups of k3 and of k2 tiles."""
        f = self.field
        with (
            self._groups(*stay, f["k3"]) as stay_group,
            self._groups(*passing, f["k2"]) as pass_group,
            self.code.loop(*stay_group) as staying,
            self.code.loop(*pass_group) as passed,
        ):
            pair = _Pair(staying, passed) if self.order == "IS" else _Pair(passed, staying)
            place = (staying * f["pass_count"] + passed) * (self.tile.rows * self.tile.columns)
            self._pair(pair, k, end, self.base["sums"].at(place))

    @contextmanager
    def _groups(self, start: Int, stop: Int, size: Int) -> Iterator[tuple[Int, Int]]:
        """Run the block for the first and the end of each group of `size` numbers."""
        b = self.code.builder
        counter = self.code.variable(INDEX, start.value)
        with self.code.whilst(lambda: Int(b, counter.get()) < stop):
            first = Int(b, counter.get())
            yield first, (first + size).least(stop)
            counter.set((first + size).value)

    def _pair(self, pair: _Pair, k: Int, end: Int, sums: Pointer) -> None:
        f, b = self.field, self.code.builder
        row, step = pair.input // f["row_tiles"], pair.input % f["row_tiles"]
        # a row's last tile begins where it is full, and computes some pixels twice
        at_end = step.equals(f["row_tiles"] - 1)
        window = self.base["x"].at(row * f["x_row"] + f["x_last"].where(at_end, step * f["x_tile"]))
        column = f["last"].where(at_end, step * self.tile.rows)
        weights = self.base["w"].at(pair.weight * f["w_block"] + k * self.tile.columns)
        begun = Pointer(b, b.select(k.equals(0), self.null.value, sums.value))
        inputs = window, weights, self.plan.pointer("table", INDEX).at(k), end - k, begun
        with b.if_else(end < f["count"]) as (more, last):
            with more:
                self._call(self.partial, inputs, sums, self.code.constant(self.tile.columns), self.null)
            with last:
                self._finish(inputs, pair.weight, row * f["out_row"] + column)

    def _finish(self, inputs: Any, weight: Int, place: Int) -> None:
        """Write a tile of the result; the last weight tile may have fewer filters."""
        f, b, columns = self.field, self.code.builder, self.tile.columns
        out = self.base["out"].at(weight * f["out_block"] + place)
        bias = self.base["bias"].at(weight * columns)
        left, rows = f["filters"] - weight * columns, self.code.constant(self.tile.rows)
        with b.if_else(left < columns) as (some, whole):
            with whole:
                self._call(self.final, inputs, out, f["ld"], bias)
            with some:
                self._call(self.final, inputs, self.edge, rows, bias)
                with self.code.loop(0, left) as channel:
                    for pixel in range(self.tile.rows):
                        number = self.edge.at(channel * rows + pixel).load()
                        out.at(channel * f["ld"] + pixel).store(number)

    def _call(self, callee: Code, inputs: Any, out: Pointer, ld: Int, bias: Pointer) -> None:
        window, weights, table, count, begun = inputs
        limits = [ir.Constant(FLOAT, float(bound)) for bound in ("-inf", "inf")]
        columns = self.code.constant(self.tile.columns)
        self.code.call(callee, window, weights, table, count, begun, columns, out, ld, bias, self.null, *limits)
