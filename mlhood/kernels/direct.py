"""The direct convolution: prepared once for a shape and weights, then run for any number of inputs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import native, parallel
from mlhood.kernels.codegen import jit, packing
from mlhood.kernels.codegen.arguments import pack_arguments, word_index
from mlhood.kernels.codegen.direct_kernel import FIELDS, DirectVariant, build
from mlhood.kernels.codegen.microkernel import Tile
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.direct_variants import MAX_CHUNK, channel_block, choose
from mlhood.kernels.direct_variants import WEIGHT_BYTES as _WEIGHT_BYTES
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.geometry import Geometry, Layout, Pair, geometry, stored_shape
from mlhood.kernels.native import NativeCall
from mlhood.kernels.parallel import aligned

_TASKS_PER_THREAD = 4  # more would have both threads read the weights of a block
_PAD_TASKS_PER_THREAD = 4
_ADDRESSES = ("source", "x", "out", "scratch", "residual")  # fields that differ from call to call


class Direct:
    """A prepared convolution: weights packed, kernel compiled.

    Args:
        g: The geometry.
        w: float32 [F, C / groups, KH, KW].
        bias: float32 [F] or None.
        target: The processor; the host by default.
        input_layout: Layout of the input; blocks have the target's lanes.
        output_layout: Layout of the result and of the residual.
        threads: Threads that pack the weights.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`.

    Raises:
        KernelError: If w or bias has the wrong shape, dtype or strides, or a block of channels would span two groups.
    """

    def __init__(
        self,
        g: Geometry,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        target: Target | None = None,
        *,
        input_layout: Layout = "plain",
        output_layout: Layout = "plain",
        threads: int = 1,
        epilogue: Sequence[Step] = (),
    ) -> None:
        self.geometry, self.target = g, target or host()
        lanes = self.target.lanes
        input_shape = stored_shape((g.images, g.channels, g.height, g.width), input_layout, lanes)
        self.shapes = input_shape, stored_shape(g.out_shape, output_layout, lanes)
        self.input_layout: Layout = input_layout
        self.output_layout: Layout = output_layout
        _check_groups(g, input_layout, output_layout, lanes)
        _check_array("w", w, (g.filters, g.channels // g.groups, *g.kernel))
        if bias is not None:
            _check_array("bias", bias, (g.filters,))
        variant = choose(g, self.target, input_layout, output_layout)
        self.variant = replace(variant, epilogue=checked_steps(epilogue))
        tile = Tile(self.variant.rows, self.variant.vectors, lanes)
        by_channel = self.variant.lanes == "channels"
        self.width, self.pixels = (tile.columns, tile.rows) if by_channel else (tile.rows, tile.columns)
        self.kernel = jit.load(build, self.target, self.variant)
        self.rows = g.rows if by_channel else g.out
        self.pads = any(g.padding) or not by_channel
        # with pixels in the lanes, a vector load reads beyond the last pixel and ignores those lanes
        slack = 0 if by_channel else self.pixels * g.stride[1] * 2
        self.padded_size = math.prod(stored_shape((g.images, g.channels, *g.padded), input_layout, lanes)) + slack
        high, wide = self.rows
        self.tiles, self.blocks = high * -(-wide // self.pixels), -(-(g.filters // g.groups) // self.width)
        depth_blocks = -(-g.depth * self.width * 4 // _WEIGHT_BYTES)
        unroll = self.variant.unroll
        self.depth_block = -(-g.depth // (depth_blocks * unroll)) * unroll
        self.calls: dict[int, NativeCall] = {}
        self.table = _offset_table(g, channel_block(input_layout, self.target), self.variant, self.pixels)
        w = w if input_layout == "plain" else _by_blocks(w, unroll)
        self.weights = pack_weights(g, w, self.width, self.target, parallel.resolve_threads(threads))
        self.bias = _padded_bias(g, bias, self.width)

    def __call__(
        self,
        x: np.ndarray,
        residual: np.ndarray | None = None,
        out: np.ndarray | None = None,
        threads: int | None = None,
    ) -> np.ndarray:
        """Return the convolution of x, contiguous float32 [N, C, H, W], as [N, F, OH, OW], or in the given layouts.

        In a blocked result, the lanes of the last block beyond the channels are undefined.

        Args:
            x: The input.
            residual: Added to the result before the steps; of the result's shape.
            out: An array for the result; neither x nor residual.
            threads: Number of threads; `parallel.threads()` by default.
        """
        count = parallel.resolve_threads(threads)
        out = np.empty(self.shapes[1], np.float32) if out is None else out
        _check_array("x", x, self.shapes[0])
        _check_array("out", out, self.shapes[1])
        if residual is not None:
            _check_array("residual", residual, self.shapes[1])
        native.run(self.prepare(count), count, x=x, y=out, **({} if residual is None else {"residual": residual}))
        return out

    def prepare(self, threads: int = 1) -> NativeCall:
        """Return the native call for a number of threads: operands "x", "y" and optionally "residual"."""
        if threads in self.calls:
            return self.calls[threads]
        words = {name: word_index(FIELDS, name) for name in _ADDRESSES}
        operands = {"x": words["source" if self.pads else "x"], "y": words["out"], "residual": words["residual"]}
        workspace = {}
        if self.pads:
            operands["padded"], workspace["padded"] = words["x"], 4 * self.padded_size
        if self.depth_block < self.geometry.depth:
            operands["sums"] = words["scratch"]
            workspace["sums"] = 4 * threads * self._chunk(threads) * self.pixels * self.width
        fields = self._task_fields(threads) | self._input_fields() | self._output_fields()
        arguments = pack_arguments(FIELDS, fields | dict.fromkeys(_ADDRESSES, 0))
        keep = self.weights, self.table, self.bias
        self.calls[threads] = NativeCall(self.kernel, arguments, operands, workspace, keep, "direct")
        return self.calls[threads]

    def _task_fields(self, threads: int) -> dict[str, int]:
        g, chunk = self.geometry, self._chunk(threads)
        chunks, planes = -(-self.tiles // chunk), math.prod(self.shapes[0][:2])
        pads = min(planes, 1 if threads == 1 else _PAD_TASKS_PER_THREAD * threads) if self.pads else 0
        return {
            "tasks": pads + g.images * g.groups * self.blocks * chunks,
            "pads": pads,
            "planes": planes,
            "blocks": self.blocks,
            "chunks": chunks,
            "groups": g.groups,
            "chunk": chunk,
            "tiles": self.tiles,
            "row_tiles": -(-self.rows[1] // self.pixels),
            "last": max(0, self.rows[1] - self.pixels),
            "chunk_inner": int(g.depth * self.width * 4 * self.blocks > _WEIGHT_BYTES),
        }

    def _input_fields(self) -> dict[str, int]:
        g, block = self.geometry, channel_block(self.input_layout, self.target)
        step, padded_wide = g.stride[1] * block, g.padded[1] * block
        plane = g.padded[0] * g.padded[1]
        return {
            "high": g.height,
            "wide": g.width * block,
            "padded_high": g.padded[0],
            "padded_wide": padded_wide,
            "top": g.padding[0],
            "left": g.padding[1] * block,
            "x_image": self.shapes[0][1] * block * plane,
            "x_group": g.channels // g.groups * plane,
            "x_row": g.stride[0] * padded_wide,
            "x_tile": self.pixels * step,
            "x_last": max(0, self.rows[1] - self.pixels) * step,
            "w": self.weights.ctypes.data,
            "w_block": g.depth * self.width,
            "table": self.table.ctypes.data,
            "count": g.depth,
            "depth": self.depth_block,
        }

    def _output_fields(self) -> dict[str, int]:
        g, block = self.geometry, channel_block(self.output_layout, self.target)
        filters, image = g.filters // g.groups, g.out[0] * g.out[1]
        return {
            "filters": filters,
            "out_image": self.shapes[1][1] * block * image,
            "out_group": filters * image,
            "out_block": self.width * image,
            "out_row": self.rows[1] * block,
            "ld": image * block,
            "bias": self.bias.ctypes.data,
        }

    def _chunk(self, threads: int) -> int:
        """Return the tiles per task: few enough to balance the load of all threads."""
        parts = self.geometry.images * self.geometry.groups * self.blocks
        chunks = -(-threads * _TASKS_PER_THREAD // parts) if threads > 1 else 1
        return max(1, min(MAX_CHUNK, -(-self.tiles // chunks)))


def prepare(
    shape: tuple[int, ...],
    w: np.ndarray,
    bias: np.ndarray | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    *,
    dilation: Pair = 1,
    groups: int = 1,
) -> Direct:
    """Prepare a convolution for inputs of one shape: pack its weights and compile its kernel.

    Args:
        shape: [N, C, H, W] of the inputs; the other arguments are those of `mlhood.kernels.conv.direct`.

    Raises:
        KernelError: If shapes or parameters are inconsistent.
    """
    g = geometry(shape, w.shape, stride, padding, dilation, groups)
    return Direct(g, np.ascontiguousarray(w), None if bias is None else np.ascontiguousarray(bias))


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Reject arrays that native code would access out of bounds."""
    if array.dtype == np.float32 and array.shape == shape and array.flags.c_contiguous:
        return
    got = f"{array.dtype} {list(array.shape)}{'' if array.flags.c_contiguous else ', not contiguous'}"
    raise KernelError(f"{name} does not fit the convolution", expected=f"contiguous float32 {list(shape)}", got=got)


def _check_groups(g: Geometry, input_layout: Layout, output_layout: Layout, lanes: int) -> None:
    """Reject groups that begin in the middle of a block."""
    for what, layout, channels in (("input", input_layout, g.channels), ("result", output_layout, g.filters)):
        if layout == "blocked" and g.groups > 1 and channels // g.groups % lanes:
            raise KernelError(
                f"a block of channels of the {what} would span two groups",
                expected=f"a multiple of {lanes} channels per group",
                got=channels // g.groups,
                todo=f"use the plain layout for the {what}",
            )


@functools.lru_cache(maxsize=256)
def _offset_table(g: Geometry, channel_block: int, variant: DirectVariant, pixels: int) -> np.ndarray:
    """Return the offset of each k's element from a window's first one.

    The table is extended by the prefetch distance, with the offsets of the next tile.
    """
    table = g.offsets(channel_block)
    if channel_block > 1:  # the offsets of the first channel of each group, in the order of `_by_blocks`
        table = table.reshape(-1, variant.unroll, g.kernel[0] * g.kernel[1])[:, 0].ravel()
    else:
        table = table[:: variant.unroll]
    ahead = np.resize(table, -(-variant.prefetch // variant.unroll))
    return np.concatenate([table, ahead + pixels * variant.stride])


def _by_blocks(w: np.ndarray, group: int) -> np.ndarray:
    """Return weights [F, C, KH, KW] with groups of adjacent channels innermost: [F, C / group, KH, KW, group]."""
    filters, channels, high, wide = w.shape
    blocks = w.reshape(filters, channels // group, group, high, wide)
    return np.ascontiguousarray(blocks.transpose(0, 1, 3, 4, 2))


def pack_weights(g: Geometry, w: np.ndarray, width: int, target: Target, threads: int = 1) -> np.ndarray:
    """Return the weights as [groups, blocks, k, width], zero-padded where the last block of a group is not full."""
    filters = g.filters // g.groups
    blocks = -(-filters // width)
    out = aligned(g.groups * blocks * g.depth * width)
    values = {
        "tasks": g.groups * blocks,
        "blocks": blocks,
        "source": w.ctypes.data,
        "group": filters * g.depth,
        "ld": g.depth,
        "count": filters,
        "depth": g.depth,
        "out": out.ctypes.data,
    }
    arguments = pack_arguments(packing.FIELDS, values)
    parallel.launch(jit.load(packing.build, target, width, True), arguments, (w, out), threads)
    return out


def _padded_bias(g: Geometry, bias: np.ndarray | None, width: int) -> np.ndarray:
    filters = g.filters // g.groups
    padded = np.zeros((g.groups, -(-filters // width) * width), np.float32)
    padded[:, :filters] = 0 if bias is None else bias.reshape(g.groups, filters)
    return padded
