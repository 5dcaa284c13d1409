"""A batch of matrix products with packed right factors: c[m, n] = activation(a[m, :] b[:, n] + bias[n]).

The rows of a are read where they are. b is packed into panels [columns / width, k, width], zero-padded in the last one.
Rows that do not fill a register tile have their own microkernel, so no row is computed in vain.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import CACHE_LINE, MicrokernelSpec, Tile, microkernel
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target

_TASKS = ("tasks", "row_chunks", "panel_chunks", "chunk_rows", "chunk_panels", "panels")
_OPERANDS = ("a", "a_batch", "a_ld", "b", "b_batch", "b_panel", "c", "c_batch", "c_ld", "bias")
FIELDS = (*_TASKS, "m", "n", "k", *_OPERANDS, "floor", "ceiling")
UNROLL = 4


def build(target: Target, rows: int, vectors: int, rest: int, epilogue: tuple[Step, ...] = (), ahead: int = 0) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of the register tile.
        vectors: Vector registers in one of its rows.
        rest: Rows that remain below the last full tile; 0 for none.
        epilogue: Steps that are applied to the result instead of clamping it.
        ahead: Cache lines per iteration that are prefetched of the next panel of b.
    """
    module = ir.Module()
    options: Any = {"bias_axis": "columns", "unroll": UNROLL, "epilogue": epilogue, "ahead": ahead}
    heights = [height for height in (rows, rest) if height]
    kernels = {
        height: microkernel(
            module,
            f"multiply_{height}",
            MicrokernelSpec(Tile(height, vectors, target.lanes), None, **options),
            target,
        )
        for height in heights
    }
    return _LoopNest(Arguments(FIELDS, module), Tile(rows, vectors, target.lanes), rest, kernels, ahead).build()


class _LoopNest:
    """The loops around the microkernels."""

    def __init__(
        self, arguments: Arguments, tile: Tile, rest: int, kernels: dict[int, FunctionBuilder], ahead: int
    ) -> None:
        self.arguments, self.tile, self.rest, self.kernels, self.ahead = arguments, tile, rest, kernels, ahead
        self.code = code = arguments.code
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.edge = code.buffer(tile.rows * tile.columns)
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))
        self.limits = [arguments.float32(name) for name in ("floor", "ceiling")]

    def build(self) -> str:
        """Build the function: a task multiplies a chunk of rows with a chunk of panels, of one product."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            row_chunk = task % f["row_chunks"]
            panel_chunk, batch = (
                task // f["row_chunks"] % f["panel_chunks"],
                task // f["row_chunks"] // f["panel_chunks"],
            )
            first = panel_chunk * f["chunk_panels"]
            with self.code.loop(first, (first + f["chunk_panels"]).minimum(f["panels"])) as panel:
                self._panel(batch, panel, row_chunk * f["chunk_rows"])
        return self.arguments.finished()

    def _panel(self, batch: Int, panel: Int, first: Int) -> None:
        f, builder, column = self.field, self.code.builder, panel * self.tile.columns
        b = self.arguments.pointer("b").at(batch * f["b_batch"] + panel * f["b_panel"])
        bias = self.arguments.pointer("bias")
        bias = Pointer(builder, builder.select(bias.is_null(), self.null.value, bias.at(column).value))
        a = self.arguments.pointer("a").at(batch * f["a_batch"])
        c = self.arguments.pointer("c").at(batch * f["c_batch"] + column)
        columns = (f["n"] - column).minimum(self.tile.columns)
        last = (first + f["chunk_rows"]).minimum(f["m"])
        full = last - (last - first) % self.tile.rows
        with self.code.loop(first, full, self.tile.rows) as row:
            self._tile(self.tile.rows, row, a, b, c, bias, columns, row - first)
        if self.rest:  # only the last chunk has fewer rows than full tiles
            with builder.if_then(full < last):
                self._tile(self.rest, full, a, b, c, bias, columns, full - first)

    def _tile(
        self, rows: int, row: Int, a: Pointer, b: Pointer, c: Pointer, bias: Pointer, columns: Int, done: Int
    ) -> None:
        """Compute a tile; the `done` rows of its chunk have been computed."""
        f, width = self.field, self.tile.columns
        source, out = a.at(row * f["a_ld"]), c.at(row * f["c_ld"])
        ahead = b.at(f["b_panel"] + done // self.tile.rows * (f["k"] // UNROLL * self.ahead * CACHE_LINE))
        with self.code.builder.if_else(columns.equals(width)) as (full, partial):
            with full:
                self._multiply(rows, source, b, out, f["c_ld"], bias, ahead)
            with partial:
                self._multiply(rows, source, b, self.edge, self.code.constant(width), bias, ahead)
                with self.code.loop(0, rows) as m, self.code.loop(0, columns) as n:
                    out.at(m * f["c_ld"] + n).store(self.edge.at(m * width + n).load())

    def _multiply(
        self, rows: int, a: Pointer, b: Pointer, out: Pointer, ld: Int, bias: Pointer, ahead: Pointer
    ) -> None:
        f, null, zero = self.field, self.null, self.code.constant(0)
        arguments: list[Any] = [a, b, null, f["k"], null, zero, out, ld, bias, null, *self.limits, f["a_ld"]]
        self.code.call(self.kernels[rows], *arguments, *([ahead] if self.ahead else []))
