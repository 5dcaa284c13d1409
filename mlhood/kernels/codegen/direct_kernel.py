"""The direct convolution as native code: the input is read in place, without im2col.

Output channels are vectorised (in the lanes) and pixels of one output row are the rows of the register tile; where a
group has too few channels to fill the lanes (depthwise), it is the other way round. A table holds, for each
k = (channel, kernel row, kernel column), the offset of its element from a window's first one, so a single loop over k
serves every kernel size, dilation and layout.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import INDEX, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import CACHE_LINE, MicrokernelSpec, Tile, microkernel
from mlhood.kernels.codegen.packing import padder
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target

_PADDING = ("tasks", "pads", "planes", "source", "high", "wide", "padded_high", "padded_wide", "top", "left")
_TASKS = ("blocks", "chunks", "groups", "chunk", "tiles", "row_tiles", "last")
_INPUTS = ("x", "x_image", "x_group", "x_row", "x_tile", "x_last", "w", "w_block", "table", "count", "depth")
_OUTPUT = ("out", "out_image", "out_group", "out_block", "out_row", "ld", "bias", "residual", "filters")
FIELDS = (*_PADDING, *_TASKS, *_INPUTS, *_OUTPUT, "scratch", "chunk_inner")
WEIGHT_PREFETCH = 32  # k; the weights of a network come from memory in every run


@dataclass(frozen=True)
class DirectVariant:
    """A variant of the direct convolution.

    Args:
        rows: Rows of the register tile.
        vectors: Vector registers in one of its rows.
        stride: Elements between adjacent windows: the stride, times the lanes if the input is blocked.
        lanes: What is vectorised: output `channels` or `pixels`.
        blocked: Whether the result is [N, F / lanes, OH, OW, lanes] instead of [N, F, OH, OW]; with pixels in the
            lanes, it has a single block, whose channels are the rows of the tile.
        valid_columns: With pixels in the lanes, how many columns of the tile are written.
        prefetch: Distance in k at which the input is prefetched; 0: none.
        unroll: Adjacent elements of the input that one entry of the table of offsets stands for.
        ahead: Cache lines per iteration that are prefetched of the weights that come after those of this call.
        epilogue: Steps that are applied to the result.
    """

    rows: int
    vectors: int
    stride: int
    lanes: Literal["channels", "pixels"] = "channels"
    blocked: bool = False
    valid_columns: int | None = None
    prefetch: int = 0
    unroll: int = 1
    ahead: int = 0
    epilogue: tuple[Step, ...] = ()

    def specs(self, target: Target) -> tuple[MicrokernelSpec, MicrokernelSpec]:
        """Return the microkernel that stores partial sums and the one with the epilogue."""
        tile = Tile(self.rows, self.vectors, target.lanes)
        if self.lanes == "pixels":
            spec = MicrokernelSpec(tile, b="table", b_stride=self.stride)
            final = replace(spec, bias_axis="rows", valid_columns=self.valid_columns)
            final = replace(final, epilogue=self.epilogue)
            return spec, replace(final, store="columns", fill_lanes=True) if self.blocked else final
        spec = MicrokernelSpec(tile, self.stride, a="table", unroll=self.unroll)
        spec = replace(spec, a_prefetch=self.prefetch, b_prefetch=WEIGHT_PREFETCH, ahead=self.ahead)
        final = replace(spec, bias_axis="columns", store="blocks" if self.blocked else "columns")
        return spec, replace(final, epilogue=self.epilogue)


def build(target: Target, variant: DirectVariant) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    specs = variant.specs(target)
    kernels = [microkernel(module, name, spec, target) for name, spec in zip(("partial", "final"), specs, strict=True)]
    kernels.append(padder(module, "pad", target))
    return _LoopNest(Arguments(FIELDS, module), specs[0].tile, kernels, variant).build()


class _LoopNest:
    """The loops around the microkernel."""

    def __init__(
        self, arguments: Arguments, tile: Tile, kernels: list[FunctionBuilder], variant: DirectVariant
    ) -> None:
        self.arguments, self.tile, self.variant = arguments, tile, variant
        self.partial, self.final, self.pad = kernels  # microkernels that store partial and final sums, and the padder
        self.code = code = arguments.code
        self.channels, self.pixels = tile.columns, tile.rows
        if variant.lanes == "pixels":
            self.channels, self.pixels = tile.rows, tile.columns
        self.channel_block = tile.lanes if variant.blocked else 1  # adjacent channels of a pixel in the result
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))
        self.edge, self.edge_residual = (code.buffer(tile.rows * tile.columns) for _ in range(2))

    def build(self) -> str:
        """Build the function: the first tasks pad planes of the input, the others convolve."""
        f = self.field
        size = f["chunk"] * (self.tile.rows * self.tile.columns)
        scratch = self.arguments.pointer("scratch").at(self.arguments.thread() * size)
        with self.arguments.tasks(f["tasks"]) as task, self.code.builder.if_else(task < f["pads"]) as (pad, convolve):
            with pad:
                self._pad(task)
            with convolve:
                self.arguments.wait_for(f["pads"])
                self._convolve(task - f["pads"], scratch)
        return self.arguments.finished()

    def _pad(self, task: Int) -> None:
        f, x = self.field, self.arguments.pointer("x")
        start, stop = task * f["planes"] // f["pads"], (task + 1) * f["planes"] // f["pads"]
        with self.code.loop(start, stop) as plane:
            source = self.arguments.pointer("source").at(plane * (f["high"] * f["wide"]))
            out = x.at(plane * (f["padded_high"] * f["padded_wide"]))
            padded = [f[name] for name in ("padded_high", "padded_wide", "top", "left")]
            self.code.call(self.pad, source, f["high"], f["wide"], out, *padded)

    def _convolve(self, task: Int, scratch: Pointer) -> None:
        """Compute a chunk of tiles of one block of output channels, of one group, of one image."""
        f = self.field
        inner = f["chunks"].where(f["chunk_inner"].equals(1), f["blocks"])
        outer = f["blocks"].where(f["chunk_inner"].equals(1), f["chunks"])
        first, second, group = task % inner, task // inner % outer, task // inner // outer
        chunk = first.where(f["chunk_inner"].equals(1), second)
        block = second.where(f["chunk_inner"].equals(1), first)
        self._chunk(group // f["groups"], group % f["groups"], block, chunk, scratch)

    def _chunk(self, image: Int, group: Int, block: Int, chunk: Int, scratch: Pointer) -> None:
        f = self.field
        x = self.arguments.pointer("x").at(image * f["x_image"] + group * f["x_group"])
        w = self.arguments.pointer("w").at((group * f["blocks"] + block) * f["w_block"])
        out = image * f["out_image"] + group * f["out_group"] + block * f["out_block"]
        bias = self.arguments.pointer("bias").at((group * f["blocks"] + block) * self.channels)
        start = chunk * f["chunk"]
        stop = (start + f["chunk"]).minimum(f["tiles"])
        filters = (f["filters"] - block * self.channels).minimum(self.channels)
        with self.code.loop(0, f["count"], f["depth"]) as k:
            self._depth_block(k, start, stop, x, w, out, bias, filters, scratch)

    def _depth_block(
        self, k: Int, start: Int, stop: Int, x: Any, w: Any, out: Int, bias: Any, filters: Int, scratch: Any
    ) -> None:
        """Accumulate one block of k into all tiles of the chunk; the last block finishes them."""
        f, b = self.field, self.code.builder
        count = (f["count"] - k).minimum(f["depth"])
        is_partial = k + count < f["count"]
        with self.code.loop(start, stop) as tile:
            row, step = tile // f["row_tiles"], tile % f["row_tiles"]
            at_end = step.equals(f["row_tiles"] - 1)
            window = x.at(row * f["x_row"] + f["x_last"].where(at_end, step * f["x_tile"]))
            column = f["last"].where(at_end, step * self.pixels)
            sums = scratch.at((tile - start) * (self.tile.rows * self.tile.columns))
            initial = Pointer(b, b.select(k.equals(0), self.null.value, sums.value))
            inputs = (
                window,
                w.at(k * self.channels),
                self.arguments.pointer("table", INDEX).at(k // self.variant.unroll),
                count,
                self._ahead(w.at((k + count) * self.channels), tile - start, count),
            )
            with b.if_else(is_partial) as (partial, final):
                with partial:
                    self._call(self.partial, inputs, initial, sums, self.code.constant(self.tile.columns))
                with final:
                    offset = out + row * f["out_row"] + column * self.channel_block
                    self._finish(inputs, initial, offset, bias, filters)

    def _ahead(self, following: Pointer, tile: Int, count: Int) -> Pointer:
        """Return where a tile begins to prefetch: each takes its share of the weights that follow."""
        return following.at(tile * (count // self.variant.unroll * self.variant.ahead * CACHE_LINE))

    def _call(
        self,
        callee: FunctionBuilder,
        inputs: Any,
        initial: Any,
        out: Any,
        ld: Int,
        bias: Any = None,
        residual: Any = None,
    ) -> None:
        window, w, table, count, ahead = inputs
        a, b = (w, window) if self.variant.lanes == "pixels" else (window, w)
        columns = self.code.constant(self.tile.columns)
        epilogue = (bias or self.null, residual or self.null)
        prefetched = [ahead] if self.variant.ahead else []
        self.code.call(callee, a, b, table, count, initial, columns, out, ld, *epilogue, *prefetched)

    def _finish(self, inputs: Any, initial: Pointer, offset: Int, bias: Pointer, filters: Int) -> None:
        """Call the final microkernel; a block with fewer channels than the tile is computed in a buffer and copied."""
        out, residual = self.arguments.pointer("out").at(offset), self.arguments.pointer("residual")
        residual = self._null_if(residual, residual.at(offset))
        if self.variant.lanes == "pixels":
            ld = self.code.constant(self.channel_block) if self.variant.blocked else self.field["ld"]
            self._call(self.final, inputs, initial, out, ld, bias, residual)
            return
        lanes, blocks = self.channel_block, self.tile.columns // self.channel_block
        valid = (filters + lanes - 1) // lanes
        b, rows = self.code.builder, self.code.constant(self.tile.rows * lanes)
        with b.if_else(valid.equals(blocks)) as (full, at_edge):
            with full:
                self._call(self.final, inputs, initial, out, self.field["ld"], bias, residual)
            with at_edge:
                with self.code.builder.if_then(b.not_(residual.is_null())):
                    self._copy(self.edge_residual, rows, residual, self.field["ld"], valid)
                edge_residual = self._null_if(residual, self.edge_residual)
                self._call(self.final, inputs, initial, self.edge, rows, bias, edge_residual)
                self._copy(out, self.field["ld"], self.edge, rows, valid)

    def _null_if(self, condition: Pointer, pointer: Pointer) -> Pointer:
        """Return null if the first pointer is null, else the second."""
        builder = self.code.builder
        return Pointer(builder, builder.select(condition.is_null(), self.null.value, pointer.value))

    def _copy(self, out: Pointer, out_ld: Int, source: Pointer, source_ld: Int, count: Int) -> None:
        """Copy the first `count` channels, or blocks of channels, of a tile."""
        lanes = self.channel_block
        with self.code.loop(0, count) as i:
            for pixel in range(self.tile.rows):
                value = source.at(i * source_ld + pixel * lanes).load(lanes if lanes > 1 else None)
                out.at(i * out_ld + pixel * lanes).store(value)
