"""The direct convolution as native code: no im2col, the input is read where it lies.

Output channels lie in the lanes of the registers and pixels of one output row are the rows of the tile; where a group
has too few channels to fill the lanes (depthwise), it is the other way round. A table says, for each k = (channel,
kernel row, kernel column), how far from a window's first element its number lies; so one loop over k serves every
kernel size, dilation and layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Plan, kernel
from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, Code, Int, Pointer
from mlhood.kernels.codegen.microkernel import Shape, Tile, microkernel
from mlhood.kernels.codegen.padding import padder
from mlhood.kernels.codegen.target import Target

FIELDS = (
    "tasks", "pads", "planes", "source", "high", "wide", "padded_high", "padded_wide", "top", "left",
    "blocks", "chunks", "groups", "chunk", "tiles", "row_tiles", "last",
    "x", "x_image", "x_group", "x_row", "x_tile", "x_last",
    "w", "w_block", "table", "count", "depth",
    "out", "out_image", "out_group", "out_block", "out_row", "ld", "bias", "residual", "filters",
    "scratch", "floor", "ceiling", "chunk_inner",
)  # fmt: skip


_WEIGHTS_AHEAD = 32  # k: a network's weights come from memory each time


@dataclass(frozen=True)
class _Parts:
    """The functions that the loops call: microkernels that leave sums behind or finish, and one that pads."""

    partial: Code
    final: Code
    pad: Code


@dataclass(frozen=True)
class Variant:
    """One of the direct convolutions.

    Args:
        rows: Rows of the register tile.
        vectors: Registers in one of its rows.
        spread: Elements between neighbouring windows: the stride, times the lanes where the input is blocked.
        lanes: What lies in the lanes: output `channels` or `pixels`.
        blocked: Whether the result is [N, F / lanes, OH, OW, lanes] instead of [N, F, OH, OW].
        valid: With pixels in the lanes, how many of the tile's columns are written.
        ahead: How many k ahead the input is fetched into the cache; 0: not.
    """

    rows: int
    vectors: int
    spread: int
    lanes: Literal["channels", "pixels"] = "channels"
    blocked: bool = False
    valid: int | None = None
    ahead: int = 0

    def shapes(self, target: Target) -> tuple[Shape, Shape]:
        """Return what the microkernel that leaves sums behind reads and writes, and the one that finishes."""
        tile = Tile(self.rows, self.vectors, target.lanes)
        if self.lanes == "pixels":
            shape = Shape(tile, b="table", b_spread=self.spread)
            return shape, replace(shape, per="rows", valid=self.valid)
        shape = Shape(tile, self.spread, a="table", a_ahead=self.ahead, b_ahead=_WEIGHTS_AHEAD)
        return shape, replace(shape, per="columns", store="blocks" if self.blocked else "columns")


def build(target: Target, variant: Variant) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    partial, final = variant.shapes(target)
    parts = _Parts(
        microkernel(module, "partial", partial, target),
        microkernel(module, "final", final, target),
        padder(module, "pad", target),
    )
    code = kernel(module)
    _Driver(code, Plan(code, FIELDS), partial.tile, parts, variant).write()
    return str(module)


class _Driver:
    """The loops around the microkernel."""

    def __init__(self, code: Code, plan: Plan, tile: Tile, parts: _Parts, variant: Variant) -> None:
        self.code, self.plan, self.tile, self.parts, self.variant = code, plan, tile, parts, variant
        self.channels, self.pixels = tile.columns, tile.rows
        if variant.lanes == "pixels":
            self.channels, self.pixels = tile.rows, tile.columns
        self.field = {name: plan.integer(name) for name in FIELDS}
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))
        self.edge, self.edge_residual = self._buffer(), self._buffer()

    def _buffer(self) -> Pointer:
        with self.code.builder.goto_entry_block():
            slot = self.code.builder.alloca(FLOAT, size=self.tile.rows * self.tile.columns)
            # llvmlite holds on to the type of what was allocated, and vectors are stored here, too
            place = self.code.builder.inttoptr(self.code.builder.ptrtoint(slot, INDEX), ADDRESS)
        return Pointer(self.code.builder, place)

    def write(self) -> None:
        """Write the function: first the tasks that pad some planes each, then those that convolve."""
        f = self.field
        size = f["chunk"] * (self.tile.rows * self.tile.columns)
        scratch = self.plan.pointer("scratch").at(self.plan.thread() * size)
        with (
            self.plan.tasks(f["tasks"]) as task,
            self.code.builder.if_else(task < f["pads"]) as (pad, convolve),
        ):
            with pad:
                self._pad(task)
            with convolve:
                self.plan.wait_for(f["pads"])
                self._convolve(task - f["pads"], scratch)
        self.code.done()

    def _pad(self, task: Int) -> None:
        f, x = self.field, self.plan.pointer("x")
        start, stop = task * f["planes"] // f["pads"], (task + 1) * f["planes"] // f["pads"]
        with self.code.loop(start, stop) as plane:
            source = self.plan.pointer("source").at(plane * (f["high"] * f["wide"]))
            out = x.at(plane * (f["padded_high"] * f["padded_wide"]))
            self.code.call(self.parts.pad, source, f["high"], f["wide"], out, f["padded_high"], f["padded_wide"],
                           f["top"], f["left"])  # fmt: skip

    def _convolve(self, task: Int, scratch: Pointer) -> None:
        """Take some tiles of one block of output channels of one group of one image."""
        f = self.field
        inner = f["chunks"].where(f["chunk_inner"].equals(1), f["blocks"])
        outer = f["blocks"].where(f["chunk_inner"].equals(1), f["chunks"])
        first, second, rest = task % inner, task // inner % outer, task // inner // outer
        chunk = first.where(f["chunk_inner"].equals(1), second)
        block = second.where(f["chunk_inner"].equals(1), first)
        self._task(rest // f["groups"], rest % f["groups"], block, chunk, scratch)

    def _task(self, image: Int, group: Int, block: Int, chunk: Int, scratch: Pointer) -> None:
        f = self.field
        x = self.plan.pointer("x").at(image * f["x_image"] + group * f["x_group"])
        w = self.plan.pointer("w").at((group * f["blocks"] + block) * f["w_block"])
        out = image * f["out_image"] + group * f["out_group"] + block * f["out_block"]
        bias = self.plan.pointer("bias").at((group * f["blocks"] + block) * self.channels)
        start = chunk * f["chunk"]
        stop = (start + f["chunk"]).least(f["tiles"])
        left = (f["filters"] - block * self.channels).least(self.channels)
        depth = self.code.variable(INDEX, self.code.constant(0).value)
        with self.code.whilst(lambda: Int(self.code.builder, depth.get()) < f["count"]):
            k = Int(self.code.builder, depth.get())
            self._depth(k, start, stop, x, w, out, bias, left, scratch)
            depth.set((k + f["depth"]).value)

    def _depth(
        self, k: Int, start: Int, stop: Int, x: Any, w: Any, out: Int, bias: Any, left: Int, scratch: Any
    ) -> None:
        """Take one stretch of k through all tiles of the task."""
        f, b = self.field, self.code.builder
        count = (f["count"] - k).least(f["depth"])
        more = k + count < f["count"]
        with self.code.loop(start, stop) as tile:
            row, step = tile // f["row_tiles"], tile % f["row_tiles"]
            at_end = step.equals(f["row_tiles"] - 1)
            window = x.at(row * f["x_row"] + f["x_last"].where(at_end, step * f["x_tile"]))
            column = f["last"].where(at_end, step * self.pixels)
            sums = scratch.at((tile - start) * (self.tile.rows * self.tile.columns))
            partial = Pointer(b, b.select(k.equals(0), self.null.value, sums.value))
            inputs = (window, w.at(k * self.channels), self.plan.pointer("table", INDEX).at(k), count)
            with b.if_else(more) as (then, otherwise):
                with then:
                    self._call(self.parts.partial, inputs, partial, sums, self.code.constant(self.tile.columns))
                with otherwise:
                    place = out + row * f["out_row"] + column * self._piece()
                    self._final(inputs, partial, place, bias, left)

    def _call(
        self, callee: Code, inputs: Any, partial: Any, out: Any, ld: Int, bias: Any = None, z: Any = None
    ) -> None:
        window, w, table, count = inputs
        a, b = (w, window) if self.variant.lanes == "pixels" else (window, w)
        limits = [ir.Constant(FLOAT, float(bound)) for bound in ("-inf", "inf")]
        if callee is self.parts.final:
            limits = [self.plan.number("floor"), self.plan.number("ceiling")]
        columns = self.code.constant(self.tile.columns)
        self.code.call(callee, a, b, table, count, partial, columns, out, ld, bias or self.null,
                       z or self.null, *limits)  # fmt: skip

    def _final(self, inputs: Any, partial: Pointer, place: Int, bias: Pointer, left: Int) -> None:
        out, residual = self.plan.pointer("out").at(place), self._residual(place)
        bias = self._unless_null(self.plan.pointer("bias"), bias)
        if self.variant.lanes == "pixels":
            self._call(self.parts.final, inputs, partial, out, self.field["ld"], bias, residual)
            return
        lanes, parts = self._piece(), self.tile.columns // self._piece()
        left = (left + lanes - 1) // lanes
        b, rows = self.code.builder, self.code.constant(self.tile.rows * lanes)
        with b.if_else(left.equals(parts)) as (whole, some):
            with whole:
                self._call(self.parts.final, inputs, partial, out, self.field["ld"], bias, residual)
            with some:
                with self.code.when(b.not_(residual.is_null())):
                    self._copy(self.edge_residual, rows, residual, self.field["ld"], left)
                beside = self._unless_null(residual, self.edge_residual)
                self._call(self.parts.final, inputs, partial, self.edge, rows, bias, beside)
                self._copy(out, self.field["ld"], self.edge, rows, left)

    def _residual(self, place: Int) -> Pointer:
        start = self.plan.pointer("residual")
        return self._unless_null(start, start.at(place))

    def _unless_null(self, asked: Pointer, place: Pointer) -> Pointer:
        return Pointer(self.code.builder, self.code.builder.select(asked.is_null(), self.null.value, place.value))

    def _piece(self) -> int:
        """Return how many of a pixel's channels are neighbours in the result."""
        return self.tile.lanes if self.variant.blocked else 1

    def _copy(self, to: Pointer, to_ld: Int, source: Pointer, source_ld: Int, parts: Int) -> None:
        """Copy the pixels of some channels, or blocks of them, of a tile: the last of all may not fill it."""
        lanes = self._piece()
        with self.code.loop(0, parts) as part:
            for pixel in range(self.tile.rows):
                piece = source.at(part * source_ld + pixel * lanes).load(lanes if lanes > 1 else None)
                to.at(part * to_ld + pixel * lanes).store(piece)
