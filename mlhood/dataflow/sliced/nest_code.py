"""Native code for the loop nest of the sliced convolution, around the microkernel of the direct one.

Input tiles are read in place, through a table of offsets; weights are packed so that a slice of channels of one weight
tile is contiguous. The partial sums of a pair of tiles stay in memory, tile after tile, until the last slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from mlhood.dataflow.slicing.problem import Order
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.direct_kernel import WEIGHT_PREFETCH
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import MicrokernelSpec, Tile, microkernel
from mlhood.kernels.codegen.target import Target

# counts and parts are in tiles; a task is a part of the stationary and a part of the streamed tiles
_TASKS = ("tasks", "stationary_parts", "stationary_part", "streamed_part", "stationary_count", "streamed_count")
_LOOPS = ("k2", "k3", "depth", "slice_depth")
_INPUT = ("x", "x_row", "x_tile", "x_last", "row_tiles", "last", "table")
_OUTPUT = ("out", "out_block", "out_row", "ld", "filters", "bias", "sums")
FIELDS = (*_TASKS, *_LOOPS, *_INPUT, "w", "w_block", *_OUTPUT)


@dataclass(frozen=True)
class NestShape:
    """What the code is specialised for.

    Args:
        rows: Windows of the register tile.
        vectors: Vectors of filters of the register tile.
        window_stride: Elements from window to window.
        order: Which kind of tile is stationary.
        prefetch: Distance in k at which the input is prefetched, 0 for none; the table is longer by as much.
    """

    rows: int
    vectors: int
    window_stride: int
    order: Order
    prefetch: int = 0


@dataclass(frozen=True)
class _Pair:
    """The operands of one microkernel call: indices of an input tile and of a weight tile."""

    input: Int
    weight: Int


def build(target: Target, nest: NestShape) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    tile = Tile(nest.rows, nest.vectors, target.lanes)
    shape = MicrokernelSpec(tile, nest.window_stride, a="table")
    shape = replace(shape, a_prefetch=nest.prefetch, b_prefetch=WEIGHT_PREFETCH)
    partial = microkernel(module, "partial", shape, target)
    final = microkernel(module, "final", replace(shape, bias_axis="columns", store="columns"), target)
    return _Writer(Arguments(FIELDS, module), shape.tile, partial, final, nest.order).write()


class _Writer:
    """Writes the loops around the microkernel: `partial` stores sums, `final` completes a tile."""

    def __init__(
        self,
        arguments: Arguments,
        tile: Tile,
        partial: FunctionBuilder,
        final: FunctionBuilder,
        order: Order,
    ) -> None:
        self.arguments, self.tile, self.order = arguments, tile, order
        self.code = code = arguments.code
        self.partial, self.final = partial, final
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.base = {name: arguments.pointer(name) for name in ("x", "w", "out", "bias", "sums")}
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))
        self.edge = code.buffer(tile.rows * tile.columns)

    def write(self) -> str:
        """Write the function: each task processes its part of the tiles in all slices."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            first = task % f["stationary_parts"] * f["stationary_part"]
            second = task // f["stationary_parts"] * f["streamed_part"]
            stationary = first, (first + f["stationary_part"]).minimum(f["stationary_count"])
            streamed = second, (second + f["streamed_part"]).minimum(f["streamed_count"])
            with self._groups(self.code.constant(0), f["depth"], f["slice_depth"]) as (k, end):
                self._slice(k, end, stationary, streamed)
        return self.arguments.finished()

    def _slice(self, k: Int, end: Int, stationary: tuple[Int, Int], streamed: tuple[Int, Int]) -> None:
        """Process one slice of channels in groups of k3 stationary and of k2 streamed tiles."""
        f = self.field
        with (
            self._groups(*stationary, f["k3"]) as stationary_group,
            self._groups(*streamed, f["k2"]) as streamed_group,
            self.code.loop(*stationary_group) as s,
            self.code.loop(*streamed_group) as p,
        ):
            pair = _Pair(s, p) if self.order == "IS" else _Pair(p, s)
            offset = (s * f["streamed_count"] + p) * (self.tile.rows * self.tile.columns)
            self._pair(pair, k, end, self.base["sums"].at(offset))

    @contextmanager
    def _groups(self, start: Int, stop: Int, size: Int) -> Iterator[tuple[Int, Int]]:
        """Run the block for the start and the end of each group of `size` indices."""
        with self.code.loop(start, stop, size) as first:
            yield first, (first + size).minimum(stop)

    def _pair(self, pair: _Pair, k: Int, end: Int, sums: Pointer) -> None:
        f, b = self.field, self.code.builder
        row, step = pair.input // f["row_tiles"], pair.input % f["row_tiles"]
        # the last tile of a row is moved back until it is full, and computes some pixels twice
        at_end = step.equals(f["row_tiles"] - 1)
        window = self.base["x"].at(row * f["x_row"] + f["x_last"].where(at_end, step * f["x_tile"]))
        column = f["last"].where(at_end, step * self.tile.rows)
        weights = self.base["w"].at(pair.weight * f["w_block"] + k * self.tile.columns)
        begun = Pointer(b, b.select(k.equals(0), self.null.value, sums.value))
        inputs = window, weights, self.arguments.pointer("table", INDEX).at(k), end - k, begun
        with b.if_else(end < f["depth"]) as (more, last):
            with more:
                self._call(self.partial, inputs, sums, self.code.constant(self.tile.columns), self.null)
            with last:
                self._finish(inputs, pair.weight, row * f["out_row"] + column)

    def _finish(self, inputs: Any, weight: Int, offset: Int) -> None:
        """Write a tile of the result; the last weight tile may have fewer filters."""
        f, b, columns = self.field, self.code.builder, self.tile.columns
        out = self.base["out"].at(weight * f["out_block"] + offset)
        bias = self.base["bias"].at(weight * columns)
        remaining, rows = f["filters"] - weight * columns, self.code.constant(self.tile.rows)
        with b.if_else(remaining < columns) as (partial, full):
            with full:
                self._call(self.final, inputs, out, f["ld"], bias)
            with partial:
                self._call(self.final, inputs, self.edge, rows, bias)
                with self.code.loop(0, remaining) as channel:
                    for pixel in range(self.tile.rows):
                        value = self.edge.at(channel * rows + pixel).load()
                        out.at(channel * f["ld"] + pixel).store(value)

    def _call(self, callee: FunctionBuilder, inputs: Any, out: Pointer, ld: Int, bias: Pointer) -> None:
        window, weights, table, count, begun = inputs
        limits = [ir.Constant(FLOAT, float(bound)) for bound in ("-inf", "inf")]
        columns = self.code.constant(self.tile.columns)
        self.code.call(callee, window, weights, table, count, begun, columns, out, ld, bias, self.null, *limits)
